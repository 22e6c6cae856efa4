#!/usr/bin/env bash
# helm with a chart that brings a kind and rights: installed, upgraded, rolled back, uninstalled.
set -euo pipefail
cd "$(dirname "$0")"
. ../story.sh
# Helm's own caches and settings of this run alone.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export HELM_CACHE_HOME=$room HELM_CONFIG_HOME=$room HELM_DATA_HOME=$room

h() { helm --namespace helm "$@"; }
k() { kubectl --namespace helm "$@"; }
in_words='s/^(LAST DEPLOYED|UPDATED): .*/\1: TIME/; s/[A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ [0-9:]{8} [0-9]{4}/TIME/'
# What Helm tells with its own words for time.
helm_says() { run timeless h "$@"; }
timeless() { "$@" 2>&1 | sed -E "$in_words"; }

# Installs, and again where Helm asked too early: it does not wait until a kind of the chart's own is also discovered.
installs() {
  local code end=$((SECONDS + patience)) answer
  while true; do
    code=0
    answer=$(h install "$@" 2>&1) || code=$?
    [[ $answer == *'ensure CRDs are installed first'* ]] && [ $SECONDS -lt $end ] || break
    sleep 1
  done
  printf '%s\n' "$answer"
  return $code
}

installed() {
  refused h install shelf chart --create-namespace --dry-run=server
  see 'no matches for kind "Book"' 'ensure CRDs are installed first'
  run timeless installs shelf chart --create-namespace --wait --timeout ${patience}s
  see 'STATUS: deployed' 'The shelf is red.'
  refused h install shelf chart
  see 'cannot re-use a name that is still in use'
  helm_says status shelf
  run k wait deployment/web --for='jsonpath={.status.readyReplicas}=1' --timeout=${patience}s
  run k get deployment web -o 'jsonpath={.metadata.labels} {.status.readyReplicas}'
  run k get book first -o 'jsonpath={.spec.color} {.metadata.annotations}'
  see 'red' '"meta.helm.sh/release-name":"shelf"'
  run k get secrets -l owner=helm -o 'jsonpath={.items[*].metadata.name} {.items[*].type}'
  eventually k auth can-i list books.helm.example.com --as=system:serviceaccount:helm:shelf
  run k auth can-i list books.helm.example.com --as=system:serviceaccount:helm:shelf
  run k auth can-i list books.helm.example.com --as=system:serviceaccount:helm:shelf --all-namespaces
}

upgraded() {
  helm_says upgrade shelf chart --set color=blue --dry-run=server
  see 'color: blue'
  helm_says upgrade shelf chart --set color=blue,replicas=2 --wait --timeout ${patience}s
  see 'REVISION: 2'
  run k get book first -o 'jsonpath={.spec.color}'
  see blue
  run k get deployment web -o 'jsonpath={.spec.replicas} {.spec.template.spec.containers[*].image}'
  see '2 example.com/web:blue'
  # What the chart says wins over what was changed by hand, and nothing else does.
  run k patch deployment web --type=merge -p '{"spec":{"paused":false,"replicas":5},"metadata":{"labels":{"by":"hand"}}}'
  refused h upgrade shelf chart --set color=green
  see 'Unsupported value: "green"'
  run h get values shelf --revision 2 -o json
  helm_says history shelf --max 10
  see failed
}

rolled_back() {
  helm_says rollback shelf 1 --wait --timeout ${patience}s
  see 'Rollback was a success!'
  run k get book first -o 'jsonpath={.spec.color}'
  see red
  run k get deployment web -o 'jsonpath={.spec.replicas} {.metadata.labels.by}'
  helm_says upgrade --install shelf chart --atomic --timeout ${patience}s
  run h list -o json
  helm_says history shelf
}

uninstalled() {
  run h uninstall shelf --wait --timeout ${patience}s
  see 'release "shelf" uninstalled'
  refused h status shelf
  see 'release: not found'
  refused k get deployment web
  run k get secrets -l owner=helm
  see 'No resources found'
  refused k get clusterrole shelf-books
  # Helm never deletes definitions, and with them what people made of them.
  run k delete crd books.helm.example.com --wait
  run k delete namespace helm --wait --timeout=${patience}s
}

installed
upgraded
rolled_back
uninstalled
