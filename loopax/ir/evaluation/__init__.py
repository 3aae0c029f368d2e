"""What a graph means, with nothing compiled."""
