#!/usr/bin/env bash
# kubectl with kinds of every cluster: objects made by typed clients (protobuf), workloads, deletion.
set -euo pipefail
cd "$(dirname "$0")"
. ../story.sh

k() { kubectl --namespace objects "$@"; }

made_by_flags() {
  namespace objects
  run k create configmap plain --from-literal=color=red --from-literal=size=5
  run k get configmap plain -o yaml
  see 'color: red'
  run k create secret generic door --from-literal=key=open
  run k get secret door -o 'jsonpath={.data.key}'
  see b3Blbg==
  refused k create configmap plain --from-literal=color=blue
  see 'configmaps "plain" already exists'
  refused k create configmap 'Bad_Name'
  see 'a lowercase RFC 1123 subdomain must consist of'
  run k create serviceaccount robot
  run k create service clusterip front --tcp=80:8080
  run k get service front
  run k create poddisruptionbudget web --selector=app=web --min-available=1
  run k create priorityclass urgent --value=1000 --description='First of all.'
  run k get priorityclass urgent
  run k create role reader --verb=get,list --resource=configmaps --resource-name=plain
  run k create rolebinding readers --role=reader --serviceaccount=objects:robot
  run k describe role reader
  run k describe rolebinding readers
  run k create clusterrole nodes-reader --verb=get --resource=nodes
  run k create clusterrolebinding nodes-readers --clusterrole=nodes-reader --group=readers
  run k get clusterrolebinding nodes-readers -o wide
  run k create configmap ghost --from-literal=a=b --dry-run=server -o yaml
  refused k get configmap ghost
  see '(NotFound)'
}

shown() {
  run k get configmaps plain -o 'custom-columns=NAME:.metadata.name,COLOR:.data.color'
  run k get configmaps plain -o 'go-template={{.data.size}}'
  run k get configmaps,secrets
  run k get configmaps --show-labels
  run k get configmaps -l 'color in (red)'
  see 'No resources found in objects namespace.'
  run k label configmap plain color=red shelf=top
  run k label configmap plain shelf-
  refused k label configmap plain color=blue
  see "'color' already has a value (red), and --overwrite is false"
  run k label --overwrite configmap plain color=blue
  run k get configmaps -l 'color in (blue),!shelf' -L color
  run k get configmaps --field-selector metadata.name=plain -o name
  run k annotate configmap plain note='for all'
  run k describe configmap plain
  for number in 1 2 3 4 5; do run k create configmap "page-$number" -o name; done
  run k get configmaps --chunk-size=2 --sort-by='{.metadata.name}'
  see page-5
  refused k get gadgets
  see "the server doesn't have a resource type \"gadgets\""
  run k get configmaps --ignore-not-found missing
  run k get --raw /readyz
  see ok
}

applied() {
  run k apply -f config.yaml
  see 'configmap/shared created'
  run k apply -f config.yaml
  see unchanged
  run k apply view-last-applied configmap/shared
  refused k diff -f <(sed 's/"2"/"3"/' config.yaml)
  see '-  second: "2"' '+  second: "3"'
  run k diff -f config.yaml
  run k apply -f <(sed '/second/d' config.yaml)
  see configured
  run k get configmap shared -o 'jsonpath={.data}'
  see '{"first":"1"}'
  run k patch configmap shared --type=merge -p '{"data":{"third":"3"}}'
  run k patch configmap shared --type=merge -p '{"data":{"third":"3"}}'
  see 'patched (no change)'
  run k patch configmap shared --type=json -p '[{"op":"test","path":"/data/third","value":"3"},{"op":"move","from":"/data/third","path":"/data/fourth"}]'
  refused k patch configmap shared --type=json -p '[{"op":"remove","path":"/data/fifth"}]'
  refused k patch configmap shared --type=json -p '[{"op":"test","path":"/data/first","value":"9"}]'
  run k get configmap shared -o 'jsonpath={.data}'
  see '{"first":"1","fourth":"3"}'
  run k replace -f config.yaml
  run k replace --force -f config.yaml
  see 'configmap "shared" deleted' 'configmap/shared replaced'
  run env EDITOR='sed -i s/second/edited/' kubectl --namespace objects edit configmap shared
  run k get configmap shared -o 'jsonpath={.data}'
  see '"edited":"2"'
}

workload() {
  run k create deployment web --image=example.com/web:1 --replicas=2
  run k rollout status deployment web --timeout=${patience}s
  see 'deployment "web" successfully rolled out'
  run k wait deployment/web --for=condition=Available --timeout=${patience}s
  run k get deployment web -o wide
  run k get replicasets
  run k get pods -l app=web -o 'custom-columns=PHASE:.status.phase,OWNER:.metadata.ownerReferences[*].kind'
  explained deployment.spec.strategy
  see 'maxSurge'
  explained pod.spec.containers
  run k scale deployment web --replicas=3
  run k rollout status deployment web --timeout=${patience}s
  refused k scale deployment web --current-replicas=7 --replicas=1
  see 'Expected replicas to be 7, was 3'
  run k set image deployment/web web=example.com/web:2
  run k rollout status deployment web --timeout=${patience}s
  run k rollout history deployment web
  run k patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example.com/side"}]}}}}'
  eventually noticed
  run k get deployment web -o 'jsonpath={.spec.template.spec.containers[*].name}'
  see 'side web'
  run k rollout undo deployment web
  run k rollout status deployment web --timeout=${patience}s
  run k get deployment web -o 'jsonpath={.spec.template.spec.containers[*].name}'
  run k get deployment web --subresource=scale -o 'jsonpath={.spec.replicas} {.status.selector}'
  run k set env deployment/web MODE=test
  eventually noticed
  run k rollout restart deployment web
  run k rollout status deployment web --timeout=${patience}s
  run k wait deployment/web --for='jsonpath={.status.readyReplicas}=3' --timeout=${patience}s
  refused k wait deployment/web --for=condition=Progressing=False --timeout=3s
  see 'timed out waiting for the condition'
  run k wait poddisruptionbudget/web --for='jsonpath={.status.disruptionsAllowed}=2' --timeout=${patience}s
  run k get poddisruptionbudget web
}

# Whether a ReplicaSet was made for the last change: without it, the next change may take its place, or not.
noticed() {
  local wanted seen
  read -r wanted seen <<<"$(k get deployment web -o 'jsonpath={.metadata.generation} {.status.observedGeneration}')"
  [ "$wanted" = "$seen" ]
}

# The fields alone: the lab does not hold the many words about them.
explained() { run bash -c "kubectl explain --recursive $1 | sed -n '/^FIELDS/,\$p'"; }

deleted() {
  run k delete configmap plain --dry-run=server
  run k delete configmap plain shared
  run k delete configmaps --all -o name
  run k delete deployment web --cascade=orphan
  run k get replicasets -l app=web --sort-by='{.spec.replicas}' -o 'jsonpath={.items[*].spec.replicas}'
  run k delete replicasets -l app=web --cascade=foreground --wait
  run k get pods -l app=web
  see 'No resources found'
  refused k delete configmap plain
  see 'configmaps "plain" not found'
  run k delete configmap plain --ignore-not-found
  run k create configmap held
  run k patch configmap held -p '{"metadata":{"finalizers":["clients.example.com/hold"]}}'
  run k delete configmap held --wait=false
  refused k delete configmap held --timeout=3s
  see 'timed out waiting for the condition'
  run k patch configmap held --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'
  run k wait --for=delete configmap/held --timeout=${patience}s
  run k delete priorityclass urgent
  run k delete clusterrole/nodes-reader clusterrolebinding/nodes-readers
  run k delete namespace objects --wait --timeout=${patience}s
  refused k get namespace objects
}

made_by_flags
shown
applied
workload
deleted
