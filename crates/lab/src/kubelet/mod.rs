//! Nodes that boot from the user-data of their server and from nothing else.
