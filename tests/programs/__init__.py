"""Small programs that users of PyTensor reported, each with arguments and a thread to its name."""
