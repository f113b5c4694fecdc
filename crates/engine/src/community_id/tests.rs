//! IDs of the reference implementation, the Python package `communityid` 1.5, for made-up ends.

use super::*;

/// Sender, receiver, protocol, ports or type and code of ICMP, ID.
type Vector = (&'static str, &'static str, u8, Option<[u16; 2]>, &'static str);

#[rustfmt::skip]
const VECTORS: [Vector; 50] = [
    ("165.77.202.24", "37.48.187.29", 6, Some([28140, 4914]), "1:rk9Uky3UOKzV6fMlBtxABrS7xrA="),
    ("44.222.214.35", "123.46.217.30", 6, Some([16226, 29260]), "1:RZGd/IJimLA4f9Egp0hqmWp7bBA="),
    ("31.203.25.113", "31.203.25.113", 6, Some([9, 5]), "1:er9PMMpVbmKu9KF9rQkTyX88gNw="),
    ("23.68.148.214", "73.60.157.92", 17, Some([13507, 24624]), "1:G8tTTXfH/qjR5Oeb72kM6TT6wCY="),
    ("190.49.32.30", "105.254.218.160", 17, Some([61027, 59399]), "1:c8KwJPSVad4A/z+nXBD1VCQ/Qhc="),
    ("185.153.127.92", "185.153.127.92", 17, Some([9, 5]), "1:fqijhKfXB8Km6t2g7yD94MeJRP4="),
    ("124.41.153.253",
        "175.229.147.37", 132, Some([15475, 54804]), "1:YLYC+aKgCwTETbd7P4aPrFHiD/w="),
    ("84.175.77.250", "215.20.39.160", 132, Some([44580, 45898]), "1:OaibRNzzNBXO8GslR51JeyspA2k="),
    ("254.233.35.47", "254.233.35.47", 132, Some([9, 5]), "1:MYXcAqep/WjNzsrclrBoh6c73s4="),
    ("138.242.33.31", "158.228.145.197", 47, None, "1:hMDASnK3b0vNI6lU7ZFswW2KEr0="),
    ("177.11.236.181", "86.59.252.30", 50, None, "1:ukeStx63EZ2VJuKLVvhY/XRl5AY="),
    ("6fb8:932a:4238:7ec7:cbb9:c82a:fe36:2941",
        "552d:e5fb:cda4:8e40:461b:dc6d:8e8d:d4a1",
        6, Some([47024, 49865]), "1:mpPaHW/mZ404OoMSLyNIXdapLYc="),
    ("7625:4d45:2a7c:5a39:4d76:76c3:7777:62d",
        "f84d:5d5c:8686:9059:218:4a96:d680:bd0e",
        6, Some([41761, 16448]), "1:GD+SPmhlxqxZ//SAcfFcdYWnU7s="),
    ("1ba4:e9cd:c8e5:cbcf:cc46:c9ca:3502:f68a",
        "1ba4:e9cd:c8e5:cbcf:cc46:c9ca:3502:f68a",
        6, Some([9, 5]), "1:eiBs/pCVlA1d0S0CKkdaCqnYiYw="),
    ("cd06:1fde:6197:227b:6ae3:e199:5319:3848",
        "ae1b:1aeb:346b:1e:4d72:33f3:ba2b:d0e",
        17, Some([9216, 27256]), "1:vBeEqQxl0wpIYADv7Lub835Cu3o="),
    ("c0a1:4c0e:8127:b1dd:ba73:f2c3:3ee5:3b0f",
        "f9e4:ee96:f5f6:f7b9:9fab:2bf9:49c9:3451",
        17, Some([44909, 34702]), "1:Ucu7zOLwwwiCW/PJ7GxJJ9+1s6s="),
    ("f50d:52a8:bd3:6911:b937:4b0f:dd8:989f",
        "f50d:52a8:bd3:6911:b937:4b0f:dd8:989f",
        17, Some([9, 5]), "1:wk6zi0LkQw/Q/gBgqGHayVp+WlY="),
    ("2e98:85b0:bbc0:5586:b61d:7211:a8c9:7232",
        "63ea:7a91:cd26:7417:665b:fc4d:b60c:ed6",
        132, Some([3661, 36623]), "1:ABD4Ip4+OGmL3YMB0j8nQPmNws0="),
    ("f1c9:84b2:6325:b045:e4fb:b2f4:bab1:293c",
        "70e0:344d:7425:f0ae:64b6:aceb:68a3:f71e",
        132, Some([250, 62845]), "1:Mb6EKnHKJSEoYMvb9fcIx0ffCwM="),
    ("b021:2b68:3d64:c6ee:660d:f4c0:5b67:de2b",
        "b021:2b68:3d64:c6ee:660d:f4c0:5b67:de2b",
        132, Some([9, 5]), "1:eRiQvF9ROoC5WFZWTNFTBFq6RKs="),
    ("aa3f:2c6a:caab:ed23:cd82:2b7a:5155:570a",
        "410b:e1a:4d63:ee42:4ad7:f2de:b368:4fd3", 47, None, "1:cK8iKTfWYLYIdfDHC7jk4kxkWTY="),
    ("4310:af4:74a:349e:474b:de1c:63bd:6c0d",
        "e55:80f0:6cf1:95ff:7b27:a6e8:84cb:d688", 50, None, "1:lqfHVGs3gWGJ60+nt7wp5bEBY8A="),
    ("67.31.181.234", "215.66.77.9", 1, Some([8, 0]), "1:HeAH4svNKBzn/aZK0luD5g3RfQo="),
    ("225.93.2.76", "88.72.242.61", 1, Some([0, 0]), "1:DovwO5DGMX5hSRDetpEGP5Fqe9c="),
    ("31.166.247.54", "29.127.97.141", 1, Some([9, 0]), "1:d0qT8XDstJK7ytxXWh39y1OcQWg="),
    ("21.50.231.14", "32.226.166.102", 1, Some([10, 0]), "1:eJypdP71rulfw9BeXFryck2ss0k="),
    ("141.231.244.126", "132.103.229.70", 1, Some([13, 0]), "1:6HB1X692qvv/GoX6mSluNj4ZFPA="),
    ("213.62.200.226", "161.37.123.219", 1, Some([14, 0]), "1:zAfGK/W4EDN8aZxBspi+xq6u3bc="),
    ("37.108.155.62", "79.187.73.129", 1, Some([15, 0]), "1:+FTVILfcuu0fDzMB0duhEp5bkqU="),
    ("70.239.112.48", "203.249.83.114", 1, Some([16, 0]), "1:PgJPwplcq0V025fnsZd/roMTSS4="),
    ("82.220.206.173", "215.100.182.163", 1, Some([17, 0]), "1:gJMVu3LyZJSlz6Ki620y6SAqzKw="),
    ("47.187.9.173", "234.225.9.196", 1, Some([18, 0]), "1:K905ODCYiQ7o72Ka5u1T4IO1VaY="),
    ("169.151.32.57", "117.53.43.135", 1, Some([3, 1]), "1:0utmwZYk3tvhMTmQrDgeFGFt99I="),
    ("139.20.92.138", "66.216.132.207", 1, Some([11, 0]), "1:+6zEmWky4N7HiM/jUqnLuIwaDNE="),
    ("76.253.167.45", "142.29.93.217", 1, Some([5, 1]), "1:OzhS1EjAZFGaEbwmlW3H9d2hjk4="),
    ("2513:89b0:89e:2d58:8567:2ae0:71df:221c",
        "8766:3e4c:e855:5e9:ada5:d5e4:8924:4229",
        58, Some([128, 0]), "1:KZSJ2aqTjk5Umckxaz0hS58nKz0="),
    ("161f:7a14:380a:52a9:8617:19cb:5cbf:674e",
        "9fbd:9c29:6967:9475:e431:5b15:8a81:b1aa",
        58, Some([129, 0]), "1:PSp71DJs1LPUG4PqMfkYE+L8L8I="),
    ("94c:803a:12eb:7db:970:6100:f313:7dc9",
        "e4e4:366a:dd46:fd70:c942:9d95:6e2c:7589",
        58, Some([130, 0]), "1:2a6EFM5RA+eXwn2CjfkvDeAyIyk="),
    ("af76:65b2:4789:cf34:b1f2:1bd8:4277:74c",
        "2435:82dd:dc8a:5395:1c5d:2b41:c302:9059",
        58, Some([131, 0]), "1:V/hu+uvQ8B1HWV0JZohuPvl5sxQ="),
    ("7c03:960b:1729:eb3d:5ee6:50a8:89bf:e443",
        "1da:86c7:ba70:a869:a5a6:7d28:11a3:9e7d",
        58, Some([133, 0]), "1:xxUUQPl6N9cKjYD8bnVgSRG29mk="),
    ("6f8c:b692:5dac:8c:abb0:c364:2af3:f304",
        "8ecf:66e6:7f11:288:2e84:8741:2df4:49a8",
        58, Some([134, 0]), "1:J+tsc1vfQ3tYhlZwnTztIpIXz1k="),
    ("cc8c:1555:c9b7:b84:996b:9bc5:7732:2b41",
        "4f7d:c76e:a6fb:fd06:4c86:917f:4a1c:166b",
        58, Some([135, 0]), "1:uI1x4h7/gCX9dSgyp4qr/Ub9RpY="),
    ("dbc5:4753:83b:75ba:2b91:ff4:156e:4424",
        "b8ae:35b7:c0d4:e71c:19ff:9a5:7d36:fa84",
        58, Some([136, 0]), "1:OP/75Es7dUSZw7iwzm6lfwi+Dj8="),
    ("870f:1b2:e9f5:23e5:2f13:21d1:f29d:811f",
        "261e:87f7:7835:6912:7623:ebb1:fce6:c3de",
        58, Some([139, 0]), "1:I/0rl9D2q9PBgi5fsLnsnSyky5c="),
    ("274a:f540:931b:17ef:6586:27aa:4b7b:a9de",
        "8204:9bdc:4452:662:f6ff:1f0e:f8ba:899c",
        58, Some([140, 0]), "1:cLON2bw+LVwXZkn/Fxezld2qDf0="),
    ("32f4:6f75:faae:94eb:9232:ede8:ee8a:eec4",
        "3cac:6604:9f93:2bf5:f225:8f6:9444:eafe",
        58, Some([144, 0]), "1:vNEB3XkbmobRu1oDIRzr0f1tR+g="),
    ("2726:e61e:898d:c610:6b6f:6be2:2633:2e3c",
        "4892:860b:b817:43e4:8f23:39b0:baf9:7677",
        58, Some([145, 0]), "1:VYEKzzWzcDWHpZ64Fu+A0qslKLA="),
    ("feeb:f8e7:c9c4:cb7:5171:1d6:fbbf:e6ca",
        "cf93:9a99:480a:d515:b01b:c090:a1d4:3de7",
        58, Some([1, 4]), "1:1GE3PxFnmYUJsogwnK7d6PSmZaM="),
    ("a9a3:e4:a62b:ad32:cbe8:3d76:6438:600",
        "9464:81a5:be93:2144:c92a:c7c3:271d:b8ae",
        58, Some([2, 0]), "1:QpNn/UfzTM37Idi9pd6EUExAQxc="),
    ("db29:8ce1:18b6:8faf:3413:1a6d:923d:4c3e",
        "7fa7:880d:df5a:a196:6133:bf27:db01:eda",
        58, Some([143, 0]), "1:r5N9McT6fmKMUwCyyj5mmTXyohg="),
];

#[test]
fn ids_are_those_of_the_reference() {
    for (src, dst, protocol, numbers, expected) in VECTORS {
        let ends = [src, dst].map(|address| address.parse().unwrap());
        let ports = match (numbers, protocol) {
            (None, _) => Ports::None,
            (Some([kind, code]), protocol::ICMP | protocol::ICMP6) => {
                let [kind, code] = [kind, code].map(|number| u8::try_from(number).unwrap());
                Ports::of_icmp(protocol, kind, code)
            }
            (Some(ports), _) => Ports::Of(ports),
        };
        let id = CommunityId::new(ends, protocol, ports);
        assert_eq!(id.to_string(), expected, "{src} {dst} {protocol} {numbers:?}");
        assert_eq!(expected.parse(), Ok(id));
        // The other direction is the same conversation, unless there is no answer.
        let [a, b] = ends;
        let back = match ports {
            Ports::None => Ports::None,
            Ports::Of([x, y]) => Ports::Of([y, x]),
            Ports::OneWay(_) => continue,
        };
        assert_eq!(CommunityId::new([b, a], protocol, back), id);
    }
}

#[test]
fn other_texts_are_refused() {
    let good = "1:LQU9qZlK+B5F3KDmev6m5PMibrg=";
    assert!(good.parse::<CommunityId>().is_ok());
    for len in 0..good.len() {
        assert_eq!(good[..len].parse::<CommunityId>(), Err(NotCommunityId), "{len}");
    }
    for text in ["2:LQU9qZlK+B5F3KDmev6m5PMibrg=", "LQU9qZlK+B5F3KDmev6m5PMibrg=", "1:====", "1:"] {
        assert!(text.parse::<CommunityId>().is_err(), "{text}");
    }
}

/// Headers that are cut off have no ports, and no ID if they have no addresses.
#[test]
fn what_is_cut_off_is_not_made_up() {
    use crate::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
    let tcp = Headers {
        eth_type: ETHERTYPE_IPV4,
        ip_src: 1,
        ip_dst: 2,
        proto: protocol::TCP,
        l4: protocol::TCP,
        ..Headers::default()
    };
    assert_eq!(Ports::of(&tcp), Ports::Of([0, 0]));
    assert_eq!(Ports::of(&Headers { odd: true, ..tcp }), Ports::None);
    assert_eq!(Ports::of(&Headers { odd: true, port_src: 7, ..tcp }), Ports::Of([7, 0]));
    assert!(CommunityId::of(&Headers { odd: true, ..tcp }).is_some());
    let cut = Headers { odd: true, ip_src: 0, ip_dst: 0, proto: 0, ..tcp };
    assert_eq!(CommunityId::of(&cut), None);
    // The headers of the other version of ICMP are not decoded.
    let icmp = Headers { proto: protocol::ICMP6, l4: protocol::ICMP6, icmp_type: 128, ..tcp };
    assert_eq!(Ports::of(&icmp), Ports::None);
    let icmp = Headers { eth_type: ETHERTYPE_IPV6, wide: true, ..icmp };
    assert_eq!(Ports::of(&icmp), Ports::Of([128, 129]));
    // Behind extension headers.
    let later = Headers { eth_type: ETHERTYPE_IPV6, wide: true, proto: 0, ..tcp };
    assert_eq!(Ports::of(&later), Ports::None);
}
