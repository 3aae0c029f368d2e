// Boxes that scroll take the focus, so that the keyboard scrolls them; the theme's search dialog gets a name.
const scrolling = ".md-typeset pre > code, .md-typeset__scrollwrap";

function focusable() {
  for (const box of document.querySelectorAll(scrolling)) {
    if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
  }
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
}

window.addEventListener("load", focusable);
window.addEventListener("resize", focusable);
