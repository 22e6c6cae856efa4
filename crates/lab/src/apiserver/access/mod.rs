//! Who may do what: authentication, RBAC and the rules for nodes.
