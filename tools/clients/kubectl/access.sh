#!/usr/bin/env bash
# kubectl and who may do what: can-i, impersonation, reconcile, tokens, certificates.
set -euo pipefail
cd "$(dirname "$0")"
. ../story.sh

k() { kubectl --namespace access "$@"; }

asked() {
  namespace access
  run k auth whoami -o 'jsonpath={.status.userInfo.username} {.status.userInfo.groups}'
  see kubernetes-admin
  run k auth can-i create deployments
  see yes
  run k auth can-i '*' '*' --all-namespaces
  refused k auth can-i list nodes --as=jane
  see no
  run k auth can-i --list --as=jane --as-group=system:authenticated
  see selfsubjectreviews
  run k create role reader --verb=get,list,watch --resource=configmaps
  run k create rolebinding readers --role=reader --user=jane --group=testers
  eventually k auth can-i list configmaps --as=jane
  run k auth can-i list configmaps --as=jane
  refused k auth can-i list configmaps --as=jane --namespace default
  run k auth can-i get configmaps/one --as=joe --as-group=testers
  refused k auth can-i get pods --subresource=log --as=jane
  refused k auth can-i list gadgets --as=jane
  see "the server doesn't have a resource type 'gadgets'"
  run k get configmaps --as=jane
  refused k get secrets --as=jane
  see '(Forbidden)' 'User "jane" cannot list resource "secrets" in API group "" in the namespace "access"'
  refused k create configmap mine --as=jane
  see 'cannot create resource "configmaps"'
  refused k get configmaps --as=jane --as-group=none --as-uid=7 --namespace default
  refused k create rolebinding mine --clusterrole=admin --user=jane --as=jane
}

reconciled() {
  run k auth reconcile -f roles.yaml
  run k auth reconcile -f roles.yaml
  run k auth reconcile -f <(sed 's/\[get, list\]/[get]/' roles.yaml)
  run k get role keeper -o 'jsonpath={.rules}'
  run k auth reconcile --remove-extra-permissions -f <(sed 's/\[get, list\]/[get]/' roles.yaml)
  run k get role keeper -o 'jsonpath={.rules}'
}

# A ServiceAccount's token is a way in, and only where it was let.
tokens() {
  run k create serviceaccount robot
  local token
  token=$(k create token robot --duration=600s)
  [[ $token == ey*.*.* ]] || fail 'no token was given'
  run bearer "$token" auth whoami -o 'jsonpath={.status.userInfo.username} {.status.userInfo.groups}'
  see system:serviceaccount:access:robot system:serviceaccounts:access
  refused bearer "$token" get configmaps
  run k create rolebinding robots --role=reader --serviceaccount=access:robot
  eventually bearer "$token" get configmaps
  run bearer "$token" get configmaps
  refused bearer wrong get configmaps
  see 'You must be logged in to the server'
}

# The client without the certificate of the kubeconfig: that would win over the token.
bearer() {
  local token=$1 server
  shift
  server=$(kubectl config view --raw -o 'jsonpath={.clusters[0].cluster.server}')
  kubectl --kubeconfig=/dev/null --server="$server" --token="$token" --namespace access \
    --certificate-authority=<(kubectl config view --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d) "$@"
}

certificates() {
  run k create -f <(sed 's/NAME/jane/' request.yaml)
  run k get csr jane
  see Pending
  run k certificate approve jane
  see 'certificatesigningrequest.certificates.k8s.io/jane approved'
  eventually issued
  run k get csr jane
  see 'Approved,Issued'
  run k certificate approve jane
  refused k certificate deny jane
  run k create -f <(sed 's/NAME/joe/' request.yaml)
  run k certificate deny joe
  run k get csr joe
  see Denied
  run k get csr joe -o 'jsonpath={.status.conditions[*].reason} {.status.conditions[*].message}'
  see KubectlDeny
  run openssl x509 -noout -subject -in <(k get csr jane -o 'jsonpath={.status.certificate}' | base64 -d)
  see testers jane
  run k delete csr jane joe
}

issued() { [ -n "$(k get csr jane -o 'jsonpath={.status.certificate}')" ]; }

listed() {
  for group in rbac.authorization.k8s.io coordination.k8s.io certificates.k8s.io policy authorization.k8s.io; do
    run k api-resources --api-group=$group -o wide --sort-by=name
  done
  run k delete namespace access --wait --timeout=${patience}s
}

asked
reconciled
tokens
certificates
listed
