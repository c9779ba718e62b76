//! What is known of the processor at hand: its name, its caches, and how many multiply-adds it starts in a cycle.
