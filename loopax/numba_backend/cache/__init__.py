"""Native code on disk, so that a second process does not compile it again."""
