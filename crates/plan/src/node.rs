//! What a node should carry in labels, annotations and taints.
