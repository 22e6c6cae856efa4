# Words for what differs from run to run, and two spaces for any number of them: columns are as wide as such values.
s/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/UID/g
s/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z/TIME/g
s/[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}/TIME/g
s/[0-9-]{10} [0-9:.]{8,} [+-][0-9]{4} UTC/TIME/g
s/Resource Version: +[0-9]+/Resource Version: VERSION/
s/resourceVersion: "[0-9]+"/resourceVersion: VERSION/
s/"resourceVersion": ?"[0-9]+"/"resourceVersion":"VERSION"/g
s/127\.0\.0\.1:[0-9]+/SERVER/g
s/10\.[0-9]+\.[0-9]+\.[0-9]+/ADDRESS/g
# What clients log, with time and process, when they had to wait or ask again.
/^[IWE][0-9]{4} [0-9:.]+ +[0-9]+ [a-z_]+\.go:[0-9]+\] /d
# What kubectl sees of a rollout on its way, and how often, is chance.
/^Waiting for (deployment|daemon set) .*(rollout to finish: |spec update to be observed)/d
s/v1\.[0-9]+\.[0-9]+$/KUBELET/
s/(NotReady|Ready)(.*)v1\.[0-9]+\.[0-9]+/\1\2KUBELET/
s/eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+/TOKEN/g
# kubectl diff: two folders of its own.
s/(LIVE|MERGED)-[0-9]+/\1/g
s/\t[0-9-]{10} [0-9:.]+ [+-][0-9]{4}$/ TIME/
# Pods of a Deployment, of anything else by generateName, and the hash of a template.
s/(web|api)-[0-9a-f]{1,10}-[a-z0-9]{5}\b/\1-HASH-NAME/g
s/(web|api)-[0-9a-f]{1,10}\b/\1-HASH/g
s/(agent|cni)-[a-z0-9]{5}\b/\1-NAME/g
s/(pod-template-hash=)[0-9a-f]+/\1HASH/g
s/( |^)(<invalid>|([0-9]+(d|h|m|s|ms)){1,2})( ago|\)|  |$)/\1AGE\5/g
s/  +/  /g
s/ +$//
