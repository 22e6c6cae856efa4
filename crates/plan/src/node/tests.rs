//! What is put on nodes, and what is left alone.
