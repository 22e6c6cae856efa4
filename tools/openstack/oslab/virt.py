"""Nova's own fake hypervisor, whose boots take time and fail when told, and whose hosts share one process.

Metadata of a server says how it boots: oslab_boot_seconds=N, oslab_boot_error=TEXT.
"""
import os
import sys
import time
import uuid

from nova import exception
from nova.virt import fake

HOSTS = [f'oslab-{number}' for number in range(1, int(os.environ.get('OSLAB_COMPUTES', '8')) + 1)]


def node_uuid(host):
    """Nova: a host that comes back under another UUID is refused; the stock driver invents one per process."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, host + '.oslab'))


class OslabDriver(fake.FakeDriver):
    def get_available_resource(self, nodename):
        return dict(super().get_available_resource(nodename), uuid=node_uuid(nodename))

    def get_nodenames_by_uuid(self, refresh=False):
        return {node_uuid(name): name for name in self.get_available_nodes()}

    def spawn(self, context, instance, *args, **kwargs):
        time.sleep(float(instance.metadata.get('oslab_boot_seconds') or 0))
        if 'oslab_boot_error' in instance.metadata:
            raise exception.InstanceDeployFailure(reason=instance.metadata['oslab_boot_error'])
        return super().spawn(context, instance, *args, **kwargs)

    def init_host(self, host):
        """Takes back the guests of the last start, as a hypervisor that went on running would."""
        super().init_host(host)
        from nova import context
        from nova import objects
        from nova.compute import vm_states
        for guest in objects.InstanceList.get_by_host(context.get_admin_context(), host):
            if guest.vm_state in (vm_states.ACTIVE, vm_states.STOPPED, vm_states.ERROR):
                self.instances[guest.uuid] = fake.FakeInstance(guest.name, guest.power_state, guest.uuid)


def make_computes():
    """The nova-compute services of all hosts, not started."""
    import nova.conf
    from nova import service
    from nova.compute import rpcapi
    known = os.path.join(nova.conf.CONF.state_path, 'compute_id')
    if not os.path.exists(known):
        with open(known, 'w') as file:
            file.write(node_uuid(HOSTS[0]))
    for host in HOSTS:
        more = {'topic_alt': rpcapi.RPC_TOPIC_ALT} if hasattr(rpcapi, 'RPC_TOPIC_ALT') else {}
        yield service.Service.create(host=host, binary='nova-compute', topic=rpcapi.RPC_TOPIC, **more)


# Nova loads `nova.virt.` + compute_driver.
sys.modules['nova.virt.oslab'] = sys.modules[__name__]
