"""cinder-api, cinder-scheduler and cinder-volume in one (eventlet) process."""
import eventlet
eventlet.monkey_patch()
import __original_module_threading as orig_threading  # noqa
import threading  # noqa
orig_threading.current_thread.__globals__['_active'] = threading._active
import shlex
import sys

import os_brick
from oslo_config import cfg
from oslo_log import log as logging
from oslo_privsep import priv_context
from oslo_service import service as oslo_service

from cinder import i18n
i18n.enable_lazy()
from cinder.common import config
from cinder.common import constants
from cinder import coordination
from cinder import objects
from cinder import rpc
from cinder import service
from cinder import utils
from cinder import version

CONF = cfg.CONF


def main():
    objects.register_all()
    CONF(sys.argv[1:], project='cinder', version=version.version_string())
    config.set_middleware_defaults()
    logging.setup(CONF, 'cinder')
    priv_context.init(root_helper=shlex.split(utils.get_root_helper()))
    utils.monkey_patch()
    os_brick.setup(CONF)
    coordination.COORDINATOR.start()
    rpc.init(CONF)
    launcher = oslo_service.ServiceLauncher(CONF)
    launcher.launch_service(
        service.Service.create(binary='cinder-scheduler'))
    for backend in CONF.enabled_backends:
        launcher.launch_service(service.Service.create(
            host='%s@%s' % (CONF.host, backend), service_name=backend,
            binary=constants.VOLUME_BINARY, coordination=False))
    launcher.launch_service(service.WSGIService('osapi_volume'))
    launcher.wait()


if __name__ == '__main__':
    main()
