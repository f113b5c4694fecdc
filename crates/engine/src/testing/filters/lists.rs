//! Filters, one a line.

/// Filters that libpcap compiles for Ethernet.
pub(super) const WRITTEN: &str = r"
host 10.0.0.1
src host 10.0.0.1
dst host 10.0.0.1
src or dst host 10.0.0.1
dst or src host 10.0.0.1
src and dst host 10.0.0.1
dst and src host 10.0.0.1
src 10.0.0.1
dst 10.0.0.1
ip host 10.0.0.1
ip src 10.0.0.1
ip dst host 10.0.0.1
arp host 10.0.0.1
arp src host 10.0.0.1
rarp host 10.0.0.1
rarp dst host 10.0.0.1
host 10.0.0.1 or 10.0.0.2
host (10.0.0.1 or 10.0.0.2)
host not 10.0.0.1
not host 10.0.0.1 and 10.0.0.2
host 10.0.0.1 and not (10.0.0.2 or 10.1.2.3)
host 10.1
host 10
host 167772161
host 0x0a000001
host 012.0.0.01
host ::1
host fe80::1
src host 2001:db8::5
ip6 host ff02::fb
ip6 src 2001:db8::5
host ::ffff:10.0.0.1
host 1:2:3:4:5:6:7:8
host 1:2:3:4:5:6:10.0.0.1
host ::1/128
ip6 net ::/0
net 10
net 10.0
net 10.0.0
net 10.0.0.0
net 10.0.0.1
net 192.168.1
net 0
net 0x0a01
net 10.0.0.0/8
net 10.0.0.0/30
net 0.0.0.0/0
src net 10.0.0.0/24
dst net 192.168.0.0/16
src and dst net 10.0.0.0/8
net 10.0.0.0 mask 255.0.0.0
net 10.0 mask 255.255.0.0
net 10.0.0.1 mask 255.255.255.255
net 10.0.0.0 mask 255.0.255.0
ip net 10.0.0.0/8
arp net 10.0.0.0/8
arp dst net 10.0
rarp src net 10.0.0
net fe80::/10
net 2001:db8::/32
src net 2001:db8::/32
ip6 dst net ff00::/8
net ::1
port 80
port http
port domain
port ftp
port ntp
port 0
port 65535
port 0x50
port 0120
src port 80
dst port 443
src or dst port 53
src and dst port 123
tcp port 80
udp port 53
sctp port 80
tcp src port 80
udp dst port domain
tcp dst port ftp or ftp-data or domain
tcp port (80 or 443)
tcp port (80 or 443 or 8080) and host 10.0.0.1
tcp port ((80))
tcp port not 80
port 80 or 443 and 53
port 80 and not 443
portrange 22-443
portrange 443-22
portrange 80
tcp portrange 0-1023
udp src portrange 33434-33534
sctp dst portrange 1-2
src and dst portrange 1000-2000
portrange ssh-http
tcp
udp
icmp
icmp6
igmp
igrp
pim
vrrp
carp
sctp
ah
esp
ip
ip6
arp
rarp
atalk
aarp
decnet
lat
sca
moprc
mopdl
iso
clnp
esis
es-is
isis
is-is
l1
l2
iih
lsp
snp
csnp
psnp
stp
ipx
netbeui
llc
llc i
llc s
llc u
llc rr
llc rnr
llc rej
llc ui
llc ua
llc disc
llc dm
llc sabme
llc test
llc xid
llc frmr
llc UI
ip proto 6
ip proto 17
ip proto \tcp
ip proto \udp
ip proto \icmp
ip proto ospf
ip proto 300
ip6 proto 6
ip6 proto 58
ip6 proto 0
proto 47
proto gre
proto \tcp
proto (6 or 17)
proto 6 or 17
ip protochain 6
ip6 protochain 6
protochain 17
ip6 protochain \tcp
ether proto 0x0800
ether proto \ip
ether proto \ip6
ether proto \arp
ether proto \rarp
ether proto \stp
ether proto \atalk
ether proto \aarp
ether proto \decnet
ether proto \iso
ether proto \ipx
ether proto \netbeui
ether proto loopback
ether proto 0x88cc
ether proto 0x8100
ether proto 1500
ether proto 1501
ether proto 6
ether proto 70000
iso proto \clnp
iso proto \esis
iso proto \isis
iso proto 0x81
isis proto 15
ether host 02:00:00:00:00:01
ether host 2:0:0:0:0:1
ether host 02-00-00-00-00-01
ether host 02.00.00.00.00.01
ether host 0200.0000.0001
ether host 020000000001
ether host FF:FF:FF:FF:FF:FF
ether src 02:00:00:00:00:01
ether dst 02:00:00:00:00:02
ether src host 02:00:00:00:00:01
ether src and dst 02:00:00:00:00:01
ether host 02:00:00:00:00:01 or 02:00:00:00:00:02
fddi host 02:00:00:00:00:01
tr src 02:00:00:00:00:01
wlan host 02:00:00:00:00:01
link host 02:00:00:00:00:01
ppp dst 02:00:00:00:00:01
broadcast
ether broadcast
ip broadcast
multicast
ether multicast
ip multicast
ip6 multicast
less 100
greater 100
less 0
len <= 100
len < 60
len > 1000
len >= 64
len = 60
len == 60
len != 60
100 >= len
60 != len
length > 100
len > 100 + 28
len - 14 > 46
byte 12 = 8
byte 0 < 3
byte 0 > 3
byte 13 == 0
vlan
vlan 100
vlan 0
vlan (100)
vlan and tcp
vlan 100 and tcp port 80
tcp or vlan and tcp
vlan 100 and vlan 5
vlan or vlan 5 or ip
not vlan and ip
vlan and host 10.0.0.1
(vlan and ip) or ip
mpls
mpls 16
mpls 100000 and host 10.0.0.1
mpls and mpls 16
mpls and ip
mpls 16 and mpls 100000 and ip6
mpls and tcp port 80
vlan and mpls 16
ip or mpls or ip
pppoed
pppoes
pppoes 17
pppoes and ip
pppoes 0x27 and tcp port 80
vlan and pppoes and ip6
geneve
geneve 7
geneve and ip
geneve 0xffffff and tcp port 80
geneve and vlan 5
geneve and ether host 02:00:00:00:00:01
tcp[13] & 2 != 0
tcp[13] = 18
tcp[13] == 0x12
tcp[tcpflags] == tcp-syn
tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn
tcp[tcpflags] & (tcp-syn|tcp-fin) != 0
tcp[tcpflags] & tcp-push > 0
0 != tcp[13] & 2
2 & tcp[13] != 0
tcp[13] & 0x102 = 2
tcp[12+1] & 2 = 2
tcp[13:1] = 2
tcp[13:2] = 2
tcp[tcpflags] & (tcp-ece|tcp-cwr|tcp-urg|tcp-rst) = 0
tcp[0:2] = 80
tcp[2:2] > 1023
tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420
icmp[icmptype] == icmp-echo
icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply
icmp[icmpcode] = 3
icmp[0] = 8
icmp[1] > 2
8 = icmp[0]
icmp6[icmp6type] == icmp6-neighborsolicit
icmp6[0] >= 133
icmp6[icmp6code] = 0
icmp6[4:4] = 0
icmp[icmptype] = icmp-unreach or icmp[icmptype] = icmp-timxceed
ip[0] & 0xf != 5
ip[6:2] & 0x1fff = 0
ip[8] < 5
ip[2:2] > 576
ip[9] = 6
ip[12:4] = 0x0a000001
ip[((ip[0] & 0xf) << 2) + 3] != 0
ip6[6] = 6
ip6[40] = 6
arp[6:2] = 1
rarp[7] = 3
decnet[0] = 1
lat[0] = 1
sca[0] = 1
moprc[0] = 1
mopdl[0] = 1
atalk[0] = 1
ether[0] & 1 = 0 and ip[16] >= 224
ether[12:2] = 0x0800
link[0] & 1 != 0
udp[8:4] = 0
udp[4:2] > 100
sctp[0:2] = 80
igmp[0] = 0x16
igrp[0] = 1
pim[0] = 0x20
vrrp[0] = 0x21
carp[0] = 0x21
tcp[0] + ip[0] > 5
len + tcp[13] > 100
len = ip[2:2] + 14
ip[2:2] - (ip[0] & 0xf) * 4 - (tcp[12] & 0xf0) / 4 != 0
tcp[0:2] = tcp[2:2]
tcp[0] > udp[0]
1 = 1
5 > 3 and tcp
-1 = 0xffffffff
- len > 4
len % 2 = 0
len % 3 + 1 = 2
len ^ 3 & 1 = 0
len & 1 ^ 3 = 2
len | 1 & 2 << 1 + 3 * 2 > 5
1 + 2 * 3 << 1 > len
(len) > 5
((len) + (3)) > 5
(5) < len
(tcp[0] + 1) * 2 > 100 or (udp)
len / 2 > 50
len >> 3 = 8
len << 1 > 200
tcp[0x0d] = 2
not tcp
! tcp
!tcp
not not tcp
not (tcp or udp)
not tcp and not udp
tcp and udp or icmp
tcp or udp and icmp
tcp || udp && icmp
tcp or (udp and icmp)
(tcp or udp) and (port 80 or port 53)
((tcp))
tcp port 80 or (udp port 53) or 443
host 10.0.0.1 and (port 80 or 443)
host 10.0.0.1 or (10.0.0.2 or 10.1.2.3)
port 80 or (443)
port 80 or not 443
port 80 or not (443 or 53)
port 80 or 5 < len
port 80 or (5) < len
src host 10.0.0.1 or dst port 53 or 80
tcp src or dst port 80
tcp and port 80 and host 10.0.0.1 and not host 10.0.0.2
ip and not net 10.0.0.0/8
ip[0] & 0xf0 = 0x40 and ip proto 6
tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)
not broadcast and not multicast
ether[0] & 1 = 0 and ip[16] >= 224
arp or rarp or icmp
";

/// Filters that it compiles for other links, or for no file.
pub(super) const OTHER_LINKS: &str = r"
inbound
outbound
ifindex 3
on em0
ifname em0
rset foo
ruleset foo
rnr 5
rulenum 5
srnr 5
subrulenum 5
reason match
reason bad-offset
reason 3
action pass
action block
action SCRUB
type mgt
type data
type ctl subtype ack
type mgt subtype beacon
type 0 subtype 0x80
subtype beacon
subtype qos-data
wlan type mgt
wlan type mgt subtype probe-req
wlan subtype rts
dir tods
direction fromds
dir 2
wlan addr1 02:00:00:00:00:01
wlan addr2 02:00:00:00:00:01
wlan addr3 host 02:00:00:00:00:01
wlan address4 02:00:00:00:00:01
wlan ra 02:00:00:00:00:01
wlan ta host 02:00:00:00:00:01
radio[0] = 1
ether host $1f
lane
metac
bcc
sc
ilmic
oamf4ec
oamf4sc
oam
oamf4
connectmsg
metaconnect
vpi 5
vpi = 5
vci > 5
vci (5 or 6 or 7)
fisu
lssu
lsu
msu
hfisu
hlssu
hmsu
sio 5
opc 5
dpc (5 or 6)
sls <= 3
hsio 5
hopc 5
hdpc != 5
hsls 3
";
