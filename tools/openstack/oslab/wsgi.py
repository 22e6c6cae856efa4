"""The WSGI application of the service that OSLAB_SERVICE names, for gunicorn."""
import os
import sys

service = os.environ['OSLAB_SERVICE']
sys.argv = [service]  # gunicorn's own arguments must not reach the service's option parser
if service == 'keystone':
    from keystone.wsgi.api import application  # noqa: F401
elif service == 'glance':
    from glance.wsgi.api import application  # noqa: F401
elif service == 'placement':
    from placement.wsgi.api import application  # noqa: F401
elif service == 'neutron':
    from neutron.wsgi.api import application  # noqa: F401
elif service == 'nova':
    from nova.wsgi.osapi_compute import application  # noqa: F401
    from oslab import nova_all
    try:
        nova_all.start()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(3)  # gunicorn: the worker failed to boot, give up
else:
    raise SystemExit(f'OSLAB_SERVICE={service} is none of them')
