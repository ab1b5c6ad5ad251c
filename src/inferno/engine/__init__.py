"""Token ids in, token ids out: scheduler, blocks, executor, sampler."""
