"""Every op of PyTensor against everything that loopax does with one; docs/ops.md is written from here."""
