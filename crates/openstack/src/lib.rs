//! The OpenStack provider: servers, ports, volumes and floating IPs as resumable steps.
