"""What `keystone-manage fernet_setup` and `credential_setup` do, without the seconds of their imports."""
import os
import pathlib
import sys

from cryptography.fernet import Fernet

os.umask(0o077)
for name in ('fernet-keys', 'credential-keys'):
    folder = pathlib.Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    for number in '01':
        key = folder / number
        if not key.exists():
            key.write_bytes(Fernet.generate_key())
