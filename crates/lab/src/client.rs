//! A small JSON client of the API server, for the controllers and nodes of the lab.
