"""What the real services lack on a machine without hypervisor, disks and switches."""
