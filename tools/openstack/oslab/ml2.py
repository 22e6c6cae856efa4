"""Binds every port on every host, and reports what the agents of layer 2 and 3 would: ports and floating IPs ACTIVE."""
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events
from neutron_lib.callbacks import registry
from neutron_lib.callbacks import resources
from neutron_lib.plugins import constants as plugins
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api


class OslabMechanismDriver(api.MechanismDriver):
    def initialize(self):
        for event in (events.AFTER_CREATE, events.AFTER_UPDATE):
            registry.subscribe(self._report, resources.FLOATING_IP, event)

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        segment = context.segments_to_bind[0]
        context.set_binding(
            segment[api.ID], portbindings.VIF_TYPE_OVS,
            {portbindings.CAP_PORT_FILTER: True, portbindings.VIF_DETAILS_CONNECTIVITY: self.connectivity},
            status=constants.PORT_STATUS_ACTIVE)

    def _report(self, resource, event, trigger, payload):
        state = payload.latest_state or {}
        address = payload.resource_id or state.get('id')
        used = state.get('port_id') or state.get('fixed_port_id')
        status = constants.FLOATINGIP_STATUS_ACTIVE if used else constants.FLOATINGIP_STATUS_DOWN
        directory.get_plugin(plugins.L3).update_floatingip_status(payload.context.elevated(), address, status)
