#!/usr/bin/env bash
# kubectl with a kind that the server is taught: schema, columns, the two ways to apply, scale, watch.
set -euo pipefail
cd "$(dirname "$0")"
. ../story.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

k() { kubectl --namespace custom "$@"; }

taught() {
  namespace custom
  run k apply -f widgets.yaml
  see 'customresourcedefinition.apiextensions.k8s.io/widgets.clients.example.com created'
  run k wait --for=condition=Established crd/widgets.clients.example.com --timeout=${patience}s
  # Kubernetes: discovery and OpenAPI follow in their own time.
  eventually k get widgets
  eventually k explain widget.spec.replicas
  run k get crd widgets.clients.example.com
  run k api-resources --api-group=clients.example.com
  run k api-resources --api-group=clients.example.com -o wide
  run k api-resources --categories=toys -o name
  run k explain widget
  run k explain widget --recursive
  run k explain wd.spec.ports
  refused k explain widget.spec.weight
  see 'field "weight" does not exist'
}

columns() {
  refused k create -f widget-wrong.yaml
  see 'strict decoding error: unknown field "spec.weight"'
  refused sorted k create --validate=false -f widget-wrong.yaml
  see 'spec.color: Unsupported value: "green": supported values: "red", "blue"' 'spec.ports[0].name: Required value'
  run k create -f widget.yaml --dry-run=server -o 'jsonpath={.spec.replicas}'
  see 1
  run k apply -f widget.yaml
  run k get widgets
  run k get wd alpha -o wide
  run k get toys --show-labels
  run k get widgets -A
  run k get wd alpha -o yaml --show-managed-fields
  run k describe widget alpha
  run k get widgets -o 'jsonpath={range .items[*]}{.metadata.name}={.spec.size}{"\n"}{end}'
  see alpha=5
}

applied() {
  run k apply -f widget.yaml
  see unchanged
  run k diff -f widget.yaml
  refused k diff -f widget-changed.yaml
  see '-  number: 80' '+  number: 8080'
  run k apply -f widget-changed.yaml
  see configured
  run k get widget alpha -o yaml
  see 'size: 50%' 'shelf: low'
  [[ $said != *ssh* && $said != *note:* ]] || fail 'what was left out should be gone'
  # What kubectl applied itself, in its older way, it takes over without a conflict.
  run k apply --server-side -f widget.yaml
  see serverside-applied
  run k patch widget alpha --type=merge --field-manager=painter -p '{"spec":{"color":"blue","size":6}}'
  refused k apply --server-side -f widget.yaml
  see 'Apply failed with 2 conflicts: conflicts with "painter" using clients.example.com/v1'
  run k apply --server-side --force-conflicts -f widget.yaml
  see serverside-applied
  refused k apply --server-side --field-manager=other -f widget-changed.yaml
  see 'conflicts with "kubectl"'
  refused k diff --server-side --field-manager=kubectl -f <(sed 's/number: 80/number: 81/' widget.yaml)
  see '+  number: 81'
  run k apply --server-side --field-manager=other -f <(printf '%s\n' \
    'apiVersion: clients.example.com/v1' 'kind: Widget' 'metadata: {name: alpha}' \
    'spec: {limit: 20, ports: [{name: metrics, number: 9090}]}')
  run k get widget alpha -o 'jsonpath={.spec.ports[*].name}'
  see 'web ssh metrics'
  run k apply --server-side -f <(sed '/ssh/d' widget.yaml)
  run k get widget alpha -o 'jsonpath={.spec.ports[*].name}'
  see 'web metrics'
  # Those of one second stand in the order of their names.
  sleep 1
  run k apply --server-side -f widget.yaml
  run k get widget alpha --show-managed-fields -o 'jsonpath={range .metadata.managedFields[*]}{.manager} {.operation} {.fieldsV1}{"\n"}{end}'
  run k apply --server-side --dry-run=server -f widget.yaml -o 'jsonpath={.spec.ports[*].name}'
  see ssh
}

changed() {
  run k scale widget alpha --replicas=3
  run k get widget alpha --subresource=scale -o 'jsonpath={.kind} {.spec.replicas}'
  see 'Scale 3'
  run k patch widget alpha --type=merge -p '{"spec":{"color":"blue"}}'
  run k patch widget alpha --type=json -p '[{"op":"replace","path":"/spec/limit","value":2}]' --dry-run=client -o name
  refused k patch widget alpha --type=json -p '[{"op":"replace","path":"/spec/limit","value":2}]'
  see 'there may not be more replicas than the limit'
  refused k patch widget alpha --type=strategic -p '{"spec":{"color":"red"}}'
  see 'application/strategic-merge-patch+json'
  run k patch widget alpha --type=merge -p '{"spec":{"serial":"A1"}}'
  refused k patch widget alpha --type=merge -p '{"spec":{"serial":"A2"}}'
  see 'a serial number stays'
  run k patch widget alpha --subresource=status --type=merge -p '{"status":{"phase":"Ready","replicas":3,"conditions":[{"type":"Ready","status":"True"}]}}'
  run k get widgets
  run k wait widget/alpha --for=condition=Ready --timeout=${patience}s
  run k wait widget/alpha --for='jsonpath={.status.phase}=Ready' --timeout=${patience}s
  run k patch widget alpha --type=merge -p '{"status":{"phase":"Lost"}}'
  see 'no change'
  run k get widgets --field-selector metadata.name=alpha -o name
  refused k get widgets --field-selector spec.color=red
  see 'field label not supported: spec.color'
}

watched() {
  kubectl --namespace custom get widgets --watch --output-watch-events >"$room/seen" &
  local watcher=$!
  # What is there is listed; from the next line on it is watched.
  eventually told 1 ADDED
  k scale widget alpha --replicas=4 >/dev/null
  eventually told 1 MODIFIED
  k delete widget alpha >/dev/null
  eventually told 1 DELETED
  k create -f widget.yaml >/dev/null
  eventually told 2 ADDED
  k delete widget alpha >/dev/null
  eventually told 2 DELETED
  kill $watcher
  cd "$room"
  run cat seen
  cd - >/dev/null
}

# Whether a watch has told of so many events of a type.
told() { [ "$(grep -c "^$2" "$room/seen")" -eq "$1" ]; }

forgotten() {
  run k apply -f widget.yaml
  kubectl --namespace custom get widgets --watch --output-watch-events >"$room/seen" 2>&1 &
  local watcher=$!
  eventually told 1 ADDED
  # With a change it is sure that the watch has begun.
  run k annotate widget alpha note=last --overwrite
  eventually told 1 MODIFIED
  run k delete crd widgets.clients.example.com --wait --timeout=${patience}s
  # What is not served any more is not watched either.
  wait $watcher || fail 'a watch should have ended without an error'
  told 1 DELETED || fail 'a watch was not told of the deletion'
  eventually gone
  refused k get widgets
  run k delete namespace custom --wait --timeout=${patience}s
}

gone() { ! k get --raw /apis/clients.example.com/v1; }

taught
columns
applied
changed
watched
forgotten
