//! A simulated OpenStack that speaks the REST of Keystone, Nova, Neutron, Glance and Cinder.
