"""What becomes of a routed message before a queue has it: batches, transactions, delays."""
