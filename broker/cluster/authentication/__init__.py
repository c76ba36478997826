"""Authentication on the cluster port: the shared secret, proofs of it, limits for strangers."""
