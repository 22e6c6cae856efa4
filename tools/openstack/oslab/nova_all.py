"""nova-conductor, nova-scheduler and nova-compute in nova-api's process, on the in-memory transport."""
import oslab.virt  # registers nova.virt.oslab


def start():
    import os_brick
    import os_vif
    from nova import context
    from nova import service
    from nova.conductor import rpcapi as conductor
    import nova.conf
    from nova.objects import host_mapping
    from nova.scheduler import rpcapi as scheduler
    os_brick.setup(nova.conf.CONF)
    os_vif.initialize()
    services = [
        service.Service.create(binary='nova-conductor', topic=conductor.RPC_TOPIC),
        service.Service.create(binary='nova-scheduler', topic=scheduler.RPC_TOPIC),
    ]
    for one in services:
        one.start()
    for one in oslab.virt.make_computes():
        one.start()
    # What `nova-manage cell_v2 discover_hosts` does.
    host_mapping.discover_hosts(context.get_admin_context())
