use super::*;

fn settings() -> SoakSettings {
    SoakSettings {
        objects: 640,
        connections: 4,
        pipeline: 8,
        sizes: SizeDistribution::Uniform { min: 24, max: 200 },
        page: 50,
        seed: 1,
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    for (broken, word) in [
        (SoakSettings { objects: 63, ..settings() }, "objects"),
        (SoakSettings { connections: 0, ..settings() }, "connections"),
        (SoakSettings { pipeline: 0, ..settings() }, "pipeline"),
        (SoakSettings { sizes: SizeDistribution::Fixed(23), ..settings() }, "values"),
        (SoakSettings { sizes: SizeDistribution::List(Vec::new()), ..settings() }, "sizes"),
    ] {
        let error = Soak::new(broken).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains(word), "{error}");
    }
    let mut soak = Soak::new(settings()).unwrap();
    let error = soak.run("127.0.0.1:1", Pace::Open(0.0), End::After(1.0), &mut |_| {}).unwrap_err();
    assert!(error.message().contains("rate"), "{error}");
}

#[test]
fn every_lease_has_a_place_of_its_own() {
    let leases = (0..640).filter(|&number| kind(number) == Kind::Lease);
    let places: Vec<usize> = leases.map(lease_place).collect();
    assert_eq!(places, (0..20).collect::<Vec<_>>());
}
