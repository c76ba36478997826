"""Who may speak on the cluster port: the shared secret, proofs of it, and limits for strangers."""
