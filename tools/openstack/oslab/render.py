"""Fills in the templates of etc/: render.py SOURCE DIRECTORY VENV PORTBASE."""
import os
import pathlib
import string
import sys

source, directory, venv, base = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
KEYSTONE = 5000 + base
CLIENT = f"""auth_url = http://127.0.0.1:{KEYSTONE}/v3
auth_type = password
password = service-secret
user_domain_name = Default
project_domain_name = Default
project_name = service
region_name = RegionOne"""
AUTHTOKEN = CLIENT + f"""
www_authenticate_uri = http://127.0.0.1:{KEYSTONE}/v3
service_token_roles = service
service_token_roles_required = true
memcached_servers =
token_cache_time = 300"""
VALUES = dict(
    DIR=directory,
    PASTE=venv + '/etc',
    DATABASE=f'mysql+pymysql://oslab:db-secret@127.0.0.1:{13306 + base}',
    KEYSTONE=KEYSTONE,
    GLANCE=9292 + base,
    CINDER=8776 + base,
    CLIENT=CLIENT,
    AUTHTOKEN=AUTHTOKEN,
    TOKEN_SECONDS=os.environ['OSLAB_TOKEN_SECONDS'],
    ML2_EXTENSIONS=os.environ['OSLAB_ML2_EXTENSIONS'],
)
for template in (source / 'etc').glob('*.conf'):
    target = pathlib.Path(directory) / 'etc' / template.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(string.Template(template.read_text()).substitute(VALUES))
