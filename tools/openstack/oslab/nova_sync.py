"""nova-manage's api_db sync, map_cell0, db sync and create_cell in one process: CONFIG CELL0_URL CELL1_URL."""
import sys

from nova.cmd import manage  # first: it chooses Nova's threading model
import nova.conf
from nova import config
from nova import context
from nova import objects
from oslo_log import log

configuration, cell0, cell1 = sys.argv[1:4]
config.parse_args(['nova-manage', '--config-file', configuration])
log.setup(nova.conf.CONF, 'nova')
objects.register_all()
assert not manage.ApiDbCommands().sync()
assert not manage.CellV2Commands().map_cell0(database_connection=cell0)
assert not manage.DbCommands().sync()
if 'cell1' not in {cell.name for cell in objects.CellMappingList.get_all(context.get_admin_context())}:
    assert not manage.CellV2Commands().create_cell(
        name='cell1', database_connection=cell1, transport_url='fake://')
