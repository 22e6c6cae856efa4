"""The clouds.yaml of these services."""
import os
import pathlib

import openstack
import yaml


def path(directory):
    return pathlib.Path(directory) / 'clouds.yaml'


def read(directory):
    return yaml.safe_load(path(directory).read_text())['clouds'] if path(directory).exists() else {}


def write(directory, auth_url, **more):
    """Keeps what is there, an application credential above all: its secret is told once."""
    clouds = read(directory)
    for name in ('admin', 'drover'):
        clouds[name] = dict(region_name='RegionOne', identity_api_version=3, auth=dict(
            auth_url=auth_url, username=name, password=name + '-secret', project_name=name,
            user_domain_name='Default', project_domain_name='Default'))
    for name, auth in more.items():
        clouds[name.replace('_', '-')] = dict(
            region_name='RegionOne', identity_api_version=3, auth_type='v3applicationcredential',
            auth=dict(auth_url=auth_url, **auth))
    part = path(directory).with_suffix('.part')
    with open(part, 'w', opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        yaml.safe_dump({'clouds': clouds}, file)
    part.rename(path(directory))


def connect(directory, name):
    config = openstack.config.OpenStackConfig(config_files=[str(path(directory))])
    return openstack.connection.Connection(config=config.get_one(name))
