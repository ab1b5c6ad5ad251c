"""Who proposes tokens in speculative decoding: a file each."""
