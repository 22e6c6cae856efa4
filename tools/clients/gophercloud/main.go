// Command gophercloud drives one cloud with gophercloud v2 as a node provider would, and prints what it saw.
//
//	gophercloud CLOUD    a cloud of $OS_CLIENT_CONFIG_FILE, with a password; CLOUD-appcred has an application credential
//
// Everything it makes is called drover-clients-*, and is gone at the end.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servergroups"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/tags"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/gophercloud/gophercloud/v2/pagination"
)

const (
	name   = "drover-clients-go"
	nobody = "00000000-0000-4000-8000-000000000000"
)

// What differs from run to run and from cloud to cloud.
var veils = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`req-[0-9a-f-]{36}`), "<request>"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`https?://[^\s/"'\]]+(/(identity|compute|network|image|volume))?`), "<url>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<id>"},
	{regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`), "<mac>"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`), "<ip>"},
}

func tell(step string, saw ...any) {
	line := step
	if len(saw) > 0 {
		line += ": " + strings.TrimSpace(fmt.Sprintln(saw...))
	}
	for _, veil := range veils {
		line = veil.pattern.ReplaceAllString(line, veil.name)
	}
	fmt.Println(strings.Join(strings.Fields(line), " "))
}

// must gives what there has to be.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// check ends the program when the world cannot go on.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// refused tells the status and the words of a refusal.
func refused(step string, err error) {
	var wrong gophercloud.ErrUnexpectedResponseCode
	switch {
	case err == nil:
		tell(step, "no error")
	case errors.As(err, &wrong):
		tell(step, wrong.Actual, sorted(wrong.Body))
	default:
		tell(step, err)
	}
}

// sorted is a body with its fields in order, which no service promises.
func sorted(body []byte) string {
	var whole any
	if json.Unmarshal(body, &whole) != nil {
		return string(body)
	}
	return string(must(json.Marshal(whole)))
}

// until looks again and again, until what it sees is as wanted.
func until[T any](look func() (T, error), wanted func(T) bool) T {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if seen := must(look()); wanted(seen) {
			return seen
		}
	}
	log.Fatal("gave up")
	panic("unreachable")
}

// gone waits until something is not there any more.
func gone[T any](look func() (T, error)) {
	until(func() (bool, error) {
		_, err := look()
		if gophercloud.ResponseCodeIs(err, 404) {
			return true, nil
		}
		return false, err
	}, func(there bool) bool { return there })
}

type world struct {
	compute, network, image, volume *gophercloud.ServiceClient
	flavor, picture, outside        string
}

func login(ctx context.Context, cloud string) world {
	var provider *gophercloud.ProviderClient
	var endpoint gophercloud.EndpointOpts
	for _, name := range []string{cloud + "-appcred", cloud} {
		auth, at, tls, err := clouds.Parse(clouds.WithCloudName(name))
		if err != nil {
			log.Fatal(err)
		}
		provider = must(config.NewProviderClient(ctx, auth, config.WithTLSConfig(tls)))
		endpoint = at
		tell("login of cloud"+strings.TrimPrefix(name, cloud), "good")
		auth.Password, auth.ApplicationCredentialSecret = "wrong", ""
		auth.ApplicationCredentialID = ""
		if name == cloud {
			_, err = openstack.AuthenticatedClient(ctx, auth)
			refused("login with a wrong password", err)
		}
	}
	w := world{
		compute: must(openstack.NewComputeV2(provider, endpoint)),
		network: must(openstack.NewNetworkV2(provider, endpoint)),
		image:   must(openstack.NewImageV2(provider, endpoint)),
		volume:  must(openstack.NewBlockStorageV3(provider, endpoint)),
	}
	w.compute.Microversion = "2.90"
	return w
}

func (w *world) lookups(ctx context.Context) {
	all := must(flavors.ExtractFlavors(must(flavors.ListDetail(w.compute, nil).AllPages(ctx))))
	for _, flavor := range all {
		if flavor.Name == "m1.small" {
			w.flavor = flavor.ID
			tell("flavor", flavor.VCPUs, flavor.RAM, flavor.Disk)
		}
	}
	pictures := must(images.ExtractImages(must(images.List(w.image, images.ListOpts{Sort: "name:asc"}).AllPages(ctx))))
	w.picture = pictures[0].ID
	tell("image", pictures[0].Status, pictures[0].MinDiskGigabytes, pictures[0].MinRAMMegabytes, pictures[0].Visibility)
	yes := true
	outside := external.ListOptsExt{ListOptsBuilder: networks.ListOpts{}, External: &yes}
	w.outside = must(networks.ExtractNetworks(must(networks.List(w.network, outside).AllPages(ctx))))[0].ID
	_, err := servers.Get(ctx, w.compute, nobody).Extract()
	refused("a server that is not there", err)
	_, err = flavors.Get(ctx, w.compute, nobody).Extract()
	refused("a flavor that is not there", err)
	_, err = images.Get(ctx, w.image, nobody).Extract()
	refused("an image that is not there", err)
	_, err = ports.Get(ctx, w.network, nobody).Extract()
	refused("a port that is not there", err)
	_, err = volumes.Get(ctx, w.volume, nobody).Extract()
	refused("a volume that is not there", err)
	_, err = keypairs.Get(ctx, w.compute, "no-such-key", nil).Extract()
	refused("a keypair that is not there", err)
	w.compute.Microversion = "2.999"
	_, err = servers.Get(ctx, w.compute, nobody).Extract()
	refused("a microversion too high", err)
	w.compute.Microversion = "2.90"
}

// net makes a network with a way out and returns its id, a security group's, and what takes them away again.
func (w *world) net(ctx context.Context) (string, string, func()) {
	network := must(networks.Create(ctx, w.network, networks.CreateOpts{Name: name}).Extract())
	subnet := must(subnets.Create(ctx, w.network, subnets.CreateOpts{
		NetworkID: network.ID, Name: name, CIDR: "10.97.0.0/24", IPVersion: gophercloud.IPv4,
	}).Extract())
	tell("subnet", subnet.GatewayIP, subnet.AllocationPools)
	router := must(routers.Create(ctx, w.network, routers.CreateOpts{
		Name: name, GatewayInfo: &routers.GatewayInfo{NetworkID: w.outside},
	}).Extract())
	must(routers.AddInterface(ctx, w.network, router.ID, routers.AddInterfaceOpts{SubnetID: subnet.ID}).Extract())
	refused("delete a network in use", networks.Delete(ctx, w.network, network.ID).ExtractErr())
	group := must(groups.Create(ctx, w.network, groups.CreateOpts{Name: name}).Extract())
	rule := rules.CreateOpts{
		SecGroupID: group.ID, Direction: rules.DirIngress, EtherType: rules.EtherType4, Protocol: rules.ProtocolTCP,
		PortRangeMin: 22, PortRangeMax: 22,
	}
	must(rules.Create(ctx, w.network, rule).Extract())
	_, err := rules.Create(ctx, w.network, rule).Extract()
	refused("a rule twice", err)
	return network.ID, group.ID, func() {
		must(routers.RemoveInterface(ctx, w.network, router.ID, routers.RemoveInterfaceOpts{SubnetID: subnet.ID}).Extract())
		check(routers.Delete(ctx, w.network, router.ID).ExtractErr())
		check(groups.Delete(ctx, w.network, group.ID).ExtractErr())
		check(networks.Delete(ctx, w.network, network.ID).ExtractErr())
	}
}

func (w *world) port(ctx context.Context, network, group string) *ports.Port {
	port := must(ports.Create(ctx, w.network, ports.CreateOpts{
		NetworkID: network, Name: name, Description: "uid-1", SecurityGroups: &[]string{group},
		AllowedAddressPairs: []ports.AddressPair{{IPAddress: "10.100.0.0/16"}},
	}).Extract())
	tell("port", port.Status, len(port.FixedIPs), len(port.AllowedAddressPairs), len(port.SecurityGroups))
	marks := attributestags.ReplaceAllOpts{Tags: []string{"drover", "uid-1"}}
	must(attributestags.ReplaceAll(ctx, w.network, "ports", port.ID, marks).Extract())
	found := must(ports.ExtractPorts(must(ports.List(w.network, ports.ListOpts{Tags: "drover,uid-1", NetworkID: network}).AllPages(ctx))))
	tell("ports by tags", len(found))
	_, err := ports.Create(ctx, w.network, ports.CreateOpts{
		NetworkID: network, FixedIPs: []ports.IP{{IPAddress: port.FixedIPs[0].IPAddress}},
	}).Extract()
	refused("an address twice", err)
	_, err = ports.Create(ctx, w.network, ports.CreateOpts{NetworkID: nobody}).Extract()
	refused("a port on no network", err)
	old := 0
	renamed := "x"
	_, err = ports.Update(ctx, w.network, port.ID, ports.UpdateOpts{Name: &renamed, RevisionNumber: &old}).Extract()
	refused("a change of an old revision", err)
	return port
}

// server makes one of an own port and an own volume and goes its whole way with it.
func (w *world) server(ctx context.Context, port *ports.Port, network string) {
	group := must(servergroups.Create(ctx, w.compute, servergroups.CreateOpts{Name: name, Policy: "soft-anti-affinity"}).Extract())
	defer func() { check(servergroups.Delete(ctx, w.compute, group.ID).ExtractErr()) }()
	disk := must(volumes.Create(ctx, w.volume, volumes.CreateOpts{Name: name, Size: 2, ImageID: w.picture}, nil).Extract())
	tell("volume", disk.Status, disk.Size)
	disk = until(func() (*volumes.Volume, error) { return volumes.Get(ctx, w.volume, disk.ID).Extract() },
		func(seen *volumes.Volume) bool { return seen.Status != "creating" && seen.Status != "downloading" })
	tell("volume made", disk.Status, disk.Bootable, len(disk.Attachments))
	options := servers.CreateOpts{
		Name: name, FlavorRef: w.flavor, Networks: []servers.Network{{Port: port.ID}}, Metadata: map[string]string{"uid": "1"},
		Tags: []string{"drover", "uid-1"}, UserData: []byte("#!/bin/sh\n"),
		BlockDevice: []servers.BlockDevice{{
			SourceType: servers.SourceVolume, DestinationType: servers.DestinationVolume, UUID: disk.ID, BootIndex: 0,
		}},
	}
	made := must(servers.Create(ctx, w.compute, options, servers.SchedulerHintOpts{Group: group.ID}).Extract())
	look := func() (*servers.Server, error) { return servers.Get(ctx, w.compute, made.ID).Extract() }
	tell("server at once", must(look()).Status)
	running := until(look, func(seen *servers.Server) bool { return seen.Status != "BUILD" })
	tell("server", running.Status, running.VmState, running.PowerState, len(running.AttachedVolumes), len(running.Image), *running.Tags)
	for _, entries := range running.Addresses {
		tell("its addresses", len(entries.([]any)))
	}
	w.refusals(ctx, port, network)
	w.lists(ctx)
	check(tags.Add(ctx, w.compute, made.ID, "third").ExtractErr())
	marks := must(tags.List(ctx, w.compute, made.ID).Extract())
	sort.Strings(marks)
	tell("tags", marks)
	address := must(floatingips.Create(ctx, w.network, floatingips.CreateOpts{FloatingNetworkID: w.outside, PortID: port.ID}).Extract())
	tell("floating IP", address.Status)
	_, err := floatingips.Create(ctx, w.network, floatingips.CreateOpts{FloatingNetworkID: w.outside, PortID: port.ID}).Extract()
	refused("a second one", err)
	until(func() (*floatingips.FloatingIP, error) { return floatingips.Get(ctx, w.network, address.ID).Extract() },
		func(seen *floatingips.FloatingIP) bool { return seen.Status == "ACTIVE" })
	check(servers.Stop(ctx, w.compute, made.ID).ExtractErr())
	until(look, func(seen *servers.Server) bool { return seen.Status == "SHUTOFF" })
	refused("stopped twice", servers.Stop(ctx, w.compute, made.ID).ExtractErr())
	refused("a volume that is in use, deleted", volumes.Delete(ctx, w.volume, disk.ID, nil).ExtractErr())
	check(servers.Delete(ctx, w.compute, made.ID).ExtractErr())
	gone(look)
	refused("a server deleted twice", servers.Delete(ctx, w.compute, made.ID).ExtractErr())
	left := must(ports.Get(ctx, w.network, port.ID).Extract())
	tell("its port, left behind", left.Status, left.DeviceID == "")
	check(floatingips.Delete(ctx, w.network, address.ID).ExtractErr())
	until(func() (*volumes.Volume, error) { return volumes.Get(ctx, w.volume, disk.ID).Extract() },
		func(seen *volumes.Volume) bool { return seen.Status == "available" })
	check(volumes.Delete(ctx, w.volume, disk.ID, nil).ExtractErr())
	gone(func() (*volumes.Volume, error) { return volumes.Get(ctx, w.volume, disk.ID).Extract() })
}

func (w *world) refusals(ctx context.Context, port *ports.Port, network string) {
	good := servers.CreateOpts{Name: name, FlavorRef: w.flavor, ImageRef: w.picture, Networks: []servers.Network{{UUID: network}}}
	for _, bad := range []struct {
		step   string
		change func(*servers.CreateOpts)
	}{
		{"of no image", func(one *servers.CreateOpts) { one.ImageRef = nobody }},
		{"of no flavor", func(one *servers.CreateOpts) { one.FlavorRef = nobody }},
		{"on no network", func(one *servers.CreateOpts) { one.Networks = []servers.Network{{UUID: nobody}} }},
		{"with a port in use", func(one *servers.CreateOpts) { one.Networks = []servers.Network{{Port: port.ID}} }},
		{"in no zone", func(one *servers.CreateOpts) { one.AvailabilityZone = "no-such-zone" }},
		{"with a long name", func(one *servers.CreateOpts) { one.Name = strings.Repeat("x", 256) }},
		{"with a tag that has a comma", func(one *servers.CreateOpts) { one.Tags = []string{"a,b"} }},
	} {
		options := good
		bad.change(&options)
		_, err := servers.Create(ctx, w.compute, options, nil).Extract()
		refused("a server "+bad.step, err)
	}
}

func (w *world) lists(ctx context.Context) {
	for _, one := range []struct {
		step    string
		options servers.ListOpts
	}{
		{"by name", servers.ListOpts{Name: "^" + name + "$"}},
		{"by tags", servers.ListOpts{Tags: "drover,uid-1"}},
		{"by another tag", servers.ListOpts{Tags: "uid-2"}},
		{"by status", servers.ListOpts{Status: "ACTIVE", Name: name}},
		{"in pages of one", servers.ListOpts{Limit: 1, Name: name}},
	} {
		count := 0
		err := servers.List(w.compute, one.options).EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
			found, err := servers.ExtractServers(page)
			count += len(found)
			return true, err
		})
		if err != nil {
			log.Fatal(err)
		}
		tell("servers "+one.step, count)
	}
	_, err := servers.List(w.compute, servers.ListOpts{Marker: nobody}).AllPages(ctx)
	refused("servers after one that is not there", err)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: gophercloud CLOUD")
	}
	ctx := context.Background()
	w := login(ctx, os.Args[1])
	w.lookups(ctx)
	network, group, end := w.net(ctx)
	port := w.port(ctx, network, group)
	w.server(ctx, port, network)
	check(ports.Delete(ctx, w.network, port.ID).ExtractErr())
	end()
}
