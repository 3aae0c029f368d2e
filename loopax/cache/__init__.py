"""Results kept on disk, so that a second process need not compute them again."""

from loopax.cache.folder import cache_folder, clear_cache, without_disk

__all__ = ["cache_folder", "clear_cache", "without_disk"]
