#!/usr/bin/env bash
# kubectl with nodes: cordon, taint, label, drain. It needs two Ready nodes with kubelets.
set -euo pipefail
cd "$(dirname "$0")"
. ../story.sh

k() { kubectl --namespace drained "$@"; }
read -r node other <<<"$(kubectl get nodes -o 'jsonpath={.items[*].metadata.name}')"

marked() {
  run k get nodes -o 'custom-columns=NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status'
  see True
  run k cordon "$node"
  see "node/$node cordoned"
  run k cordon "$node"
  see 'already cordoned'
  eventually tainted
  run k get node "$node" -o 'jsonpath={.spec.unschedulable} {.spec.taints[*].key} {.spec.taints[*].effect}'
  see 'true node.kubernetes.io/unschedulable NoSchedule'
  run k get node "$node" --no-headers
  see 'Ready,SchedulingDisabled'
  run k uncordon "$node"
  eventually untainted
  run k taint node "$node" dedicated=tests:NoSchedule
  refused k taint node "$node" dedicated=others:NoSchedule
  see 'already has dedicated taint(s) with same effect(s) and --overwrite is false'
  run k taint node "$node" dedicated=others:NoSchedule --overwrite
  run k get node "$node" -o 'jsonpath={.spec.taints[?(@.key=="dedicated")]}'
  run k taint node "$node" dedicated-
  refused k taint node "$node" dedicated-
  see 'taint "dedicated" not found'
  run k label node "$node" node-role.kubernetes.io/tester= shelf=top
  run k get node "$node" -L shelf --no-headers
  see tester
  run k get nodes -l shelf=top -o name
  run k label node "$node" node-role.kubernetes.io/tester- shelf-
  run k annotate node "$node" note=kept
  run k annotate node "$node" note-
  run k get lease -n kube-node-lease "$node" -o 'jsonpath={.spec.holderIdentity} {.metadata.ownerReferences[*].kind}'
}

tainted() { [[ $(k get node "${1:-$node}" -o 'jsonpath={.spec.taints[*].key}') == *unschedulable* ]]; }
untainted() { ! tainted; }

# Whether two pods run elsewhere.
replaced() {
  local phases
  phases=$(k get pods -l app=web --field-selector "spec.nodeName=$other" -o 'jsonpath={.items[*].status.phase}')
  [ "$phases" = 'Running Running' ]
}

drained() {
  namespace drained
  run k apply -f <(sed "s/NODE/$node/" pods.yaml)
  run k wait --for=condition=Ready pod/alone pod/scratch --timeout=${patience}s
  run k rollout status daemonset/agent --timeout=${patience}s
  run k get daemonset agent
  # The other node takes none: two pods of the Deployment stand where they will have to leave.
  run k cordon "$other"
  eventually tainted "$other"
  run k create deployment web --image=example.com/web --replicas=2
  run k rollout status deployment web --timeout=${patience}s
  run k create poddisruptionbudget web --selector=app=web --min-available=2
  run k wait pdb/web --for='jsonpath={.status.currentHealthy}=2' --timeout=${patience}s
  run k get poddisruptionbudget web
  run k uncordon "$other"

  # The reasons stand in any order.
  if try k drain "$node" --timeout=30s >/dev/null; then fail 'a drain should have been refused'; fi
  see 'cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): drained/agent' \
    'cannot delete Pods with local storage (use --delete-emptydir-data to override): drained/scratch' \
    'cannot delete Pods that declare no controller (use --force to override): drained/alone'
  refused sorted k drain "$node" --ignore-daemonsets --delete-emptydir-data --force --pod-selector=app=web --timeout=8s
  see "Cannot evict pod as it would violate the pod's disruption budget."
  run k patch poddisruptionbudget web --type=merge -p '{"spec":{"minAvailable":0}}'
  # Refused evictions are told, and only a quick client meets them.
  run k wait pdb/web --for='jsonpath={.status.disruptionsAllowed}=2' --timeout=${patience}s
  # Pods leave in any order.
  run sorted k drain "$node" --ignore-daemonsets --delete-emptydir-data --force --timeout=${patience}s
  see "node/$node drained" 'pod/alone evicted' 'pod/scratch evicted' 'pod/web-HASH-NAME evicted'
  eventually replaced
  run k rollout status deployment web --timeout=${patience}s
  run k get pods -l app=web -o "custom-columns=NODE:.spec.nodeName,PHASE:.status.phase"
  run k get pods -l 'app in (alone,scratch)'
  see 'No resources found'
  run k get pods -l app=agent --field-selector "spec.nodeName=$node" -o 'jsonpath={.items[*].status.phase}'
  see Running
  run k uncordon "$node"
  run k delete namespace drained --wait --timeout=${patience}s
}

marked
drained
