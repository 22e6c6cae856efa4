#!/usr/bin/env bash
# Starts a real OpenStack control plane on loopback: Keystone, Glance, Placement, Nova, Neutron and Cinder with a MariaDB,
# without containers, systemd, hypervisor or packets. Only the hypervisor, the volume back end and the network agents are
# pretended (oslab/). Run again, it repairs what is missing. Needs Debian 12 and PyPI once; later starts need neither.
#
#   OSLAB_DIR             everything it writes      (default ~/.cache/drover/openstack)
#   OSLAB_PORTBASE        added to every port       (default 0: Keystone 5000, Nova 8774, Neutron 9696, ...)
#   OSLAB_COMPUTES        hosts oslab-1..           (default 8: 5 and 6 in zone az-1, 7 and 8 in az-2, the rest in nova)
#   OSLAB_TOKEN_SECONDS   how long a token lives    (default 14400)
#   OSLAB_ML2_EXTENSIONS  drivers of ML2            (default port_security; with tag_ports_during_bulk_creation added,
#                                                    ports take tags at create)
#
# Credentials: $OSLAB_DIR/clouds.yaml, clouds admin, drover (password) and drover-appcred (application credential).
# By hand: . $OSLAB_DIR/env.sh; OS_CLOUD=drover openstack server list
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
OSLAB_DIR=${OSLAB_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/drover/openstack}
base=${OSLAB_PORTBASE:-0}
export OSLAB_DIR OSLAB_COMPUTES=${OSLAB_COMPUTES:-8} OSLAB_TOKEN_SECONDS=${OSLAB_TOKEN_SECONDS:-14400}
export OSLAB_ML2_EXTENSIONS=${OSLAB_ML2_EXTENSIONS:-port_security}
keystone=$((5000 + base)) nova=$((8774 + base)) cinder=$((8776 + base)) placement=$((8778 + base))
glance=$((9292 + base)) neutron=$((9696 + base)) database=$((13306 + base))
venv=$OSLAB_DIR/venv etc=$OSLAB_DIR/etc state=$OSLAB_DIR/state log=$OSLAB_DIR/log run=$OSLAB_DIR/run
mkdir -p "$log" "$run" "$etc" "$state"/{nova,neutron,cinder,glance/images,glance/staging,glance/tasks,keystone}
exec 9>"$OSLAB_DIR/lock"
flock 9
say() { printf '[%3ds] %s\n' "$SECONDS" "$*"; }
trap 'echo "$0: line $LINENO failed; see $log" >&2' ERR

install() {
  local missing=()
  # The -core packages bring no service that would start by itself.
  command -v mariadbd >/dev/null || missing+=(mariadb-server-core mariadb-client-core)
  /usr/bin/python3.11 -c 'import ensurepip' 2>/dev/null || missing+=(python3.11 python3.11-venv)
  if [ ${#missing[@]} -gt 0 ]; then
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >"$log/apt.log" 2>&1 ||
      { tail "$log/apt.log" >&2; return 1; }
    say "installed ${missing[*]}"
  fi
  # The venv belongs to one set of versions.
  local wanted
  wanted=$(sha256sum "$here/requirements.txt" | cut -c1-16)
  if [ "$(cat "$venv/.wanted" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$venv" "$OSLAB_DIR/uv"
    /usr/bin/python3.11 -m venv "$OSLAB_DIR/uv"
    "$OSLAB_DIR/uv/bin/pip" -q --disable-pip-version-check install uv
    "$OSLAB_DIR/uv/bin/uv" venv -q --python /usr/bin/python3.11 "$venv"
    VIRTUAL_ENV=$venv "$OSLAB_DIR/uv/bin/uv" pip install -q -r "$here/requirements.txt"
    echo "$wanted" >"$venv/.wanted"
    say "installed $(grep -vc '^#' "$here/requirements.txt") Python packages"
  fi
  # Neutron finds its drivers by the entry points of installed distributions.
  local info=$OSLAB_DIR/lib/oslab-1.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: oslab\nVersion: 1\n' >"$info/METADATA"
  printf '[neutron.ml2.mechanism_drivers]\noslab = oslab.ml2:OslabMechanismDriver\n' >"$info/entry_points.txt"
}

configure() {
  cat >"$OSLAB_DIR/env.sh" <<EOF
export PATH=$venv/bin:\$PATH PYTHONPATH=$OSLAB_DIR/lib:$here PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
export OS_KEYSTONE_CONFIG_DIR=$etc OS_PLACEMENT_CONFIG_DIR=$etc OS_GLANCE_CONFIG_DIR=$etc OS_NOVA_CONFIG_DIR=$etc
export OS_NEUTRON_CONFIG_DIR=$etc OS_GLANCE_CONFIG_FILES=glance-api.conf "OS_NOVA_CONFIG_FILES=$venv/etc/nova/api-paste.ini;nova.conf"
export OS_NEUTRON_CONFIG_FILES=neutron.conf
export OS_CLIENT_CONFIG_FILE=$OSLAB_DIR/clouds.yaml no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost
EOF
  . "$OSLAB_DIR/env.sh"
  python -m oslab.render "$here" "$OSLAB_DIR" "$venv" "$base"
}

started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# A process is known by its pid and its start time: the kernel gives a pid to others later.
alive() {
  local pid start
  read -r pid start 2>/dev/null <"$run/$1.pid" && [ -n "$start" ] && [ "$(started "$pid")" = "$start" ]
}

spawn() { # NAME COMMAND..
  alive "$1" && return
  setsid "${@:2}" >>"$log/$1.out" 2>&1 9>&- </dev/null &
  echo "$! $(started $!)" >"$run/$1.pid"
}

serve() { # SERVICE PORT THREADS: one process each, this machine is shared
  OSLAB_SERVICE=$1 spawn "$1" gunicorn --bind "127.0.0.1:$2" --workers 1 --threads "$3" --worker-class gthread \
    --timeout 120 --graceful-timeout 5 --keep-alive 75 --limit-request-line 8190 --no-control-socket oslab.wsgi:application
}

await() { # NAME PORT
  local end=$((SECONDS + 300))
  until python -c "import http.client as h; c = h.HTTPConnection('127.0.0.1', $2, timeout=5); c.request('GET', '/'); c.getresponse()" 2>/dev/null; do
    if ! alive "$1" || [ $SECONDS -ge $end ]; then
      echo "$1 does not answer on port $2:" >&2
      tail -n 20 "$log/$1.out" >&2
      return 1
    fi
    sleep 0.2
  done
}

start_database() {
  local root=()
  [ "$(id -u)" != 0 ] || root=(--user=root)
  if [ ! -e "$state/.database" ]; then
    rm -rf "$state/mysql"
    mariadb-install-db --no-defaults "${root[@]}" --datadir="$state/mysql" --auth-root-authentication-method=normal \
      --skip-test-db >"$log/database-install.out" 2>&1
    touch "$state/.database"
  fi
  # The data are worth nothing after a crash of the machine: no wait for the disk.
  spawn database "$(PATH=$PATH:/usr/sbin command -v mariadbd)" --no-defaults "${root[@]}" --datadir="$state/mysql" \
    --socket="$run/mysql.sock" --pid-file="$run/mysql.pid" --bind-address=127.0.0.1 --port=$database --skip-name-resolve \
    --skip-log-bin --innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync --innodb-buffer-pool-size=128M \
    --innodb-log-file-size=32M --performance-schema=OFF --max-connections=500 --character-set-server=utf8mb4 \
    --collation-server=utf8mb4_general_ci
  sql() { mariadb --no-defaults --socket="$run/mysql.sock" -uroot "$@"; }
  local end=$((SECONDS + 60))
  until sql -e 'select 1' >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { tail "$log/database.out" >&2; return 1; }
    sleep 0.1
  done
  {
    for name in keystone glance placement nova_api nova nova_cell0 neutron cinder; do
      echo "create database if not exists $name character set utf8mb3;"
    done
    echo "create user if not exists oslab@127.0.0.1 identified by 'db-secret'; grant all on *.* to oslab@127.0.0.1;"
  } | sql
  say "database"
}

migrate() { # the services' own migrations, two at a time
  [ ! -e "$state/.schemas" ] || return 0
  local url=mysql+pymysql://oslab:db-secret@127.0.0.1:$database
  local steps=(
    "neutron-db-manage --config-file $etc/neutron.conf upgrade heads"
    "python -m oslab.nova_sync $etc/nova.conf $url/nova_cell0?charset=utf8mb4 $url/nova?charset=utf8mb4"
    "keystone-manage --config-file $etc/keystone.conf db_sync"
    "cinder-manage --config-file $etc/cinder.conf db sync"
    "glance-manage --config-file $etc/glance-api.conf db_sync"
    "placement-manage --config-file $etc/placement.conf db sync"
  )
  printf '%s\0' "${steps[@]}" | xargs -0 -P 2 -I{} bash -c '{}' >"$log/schemas.out" 2>&1 9>&- ||
    { tail -n 20 "$log/schemas.out" >&2; return 1; }
  touch "$state/.schemas"
  say "schemas"
}

bootstrap() {
  [ ! -e "$state/.bootstrapped" ] || return 0
  python -m oslab.keys "$state/keystone"
  local url=http://127.0.0.1:$keystone/v3
  keystone-manage --config-file "$etc/keystone.conf" bootstrap --bootstrap-password admin-secret \
    --bootstrap-region-id RegionOne --bootstrap-admin-url $url --bootstrap-internal-url $url --bootstrap-public-url $url \
    >"$log/bootstrap.out" 2>&1
  touch "$state/.bootstrapped"
  say "first administrator"
}

install
configure
start_database
migrate
bootstrap
serve keystone $keystone 8
await keystone $keystone
python -m oslab.catalog "$OSLAB_DIR" "$base"
serve placement $placement 8
serve glance $glance 4
serve neutron $neutron 8
spawn cinder python -m oslab.cinder_all --config-file "$etc/cinder.conf"
await placement $placement
serve nova $nova 8
await glance $glance
await neutron $neutron
await cinder $cinder
await nova $nova
say "services"
python -m oslab.seed "$OSLAB_DIR"
say "ready: clouds admin, drover and drover-appcred in $OSLAB_DIR/clouds.yaml"
