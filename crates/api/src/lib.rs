//! The nouns of Drover: the kinds it serves, their schemas, and every name it writes.
