use super::*;

fn constant_of(value: f64) -> Constant {
    Constant { value, source: "test".into() }
}

fn model() -> EnergyModel {
    EnergyModel {
        name: "test".into(),
        idle_per_processor: constant_of(2.0),
        cpu_second: constant_of(10.0),
        read: constant_of(0.5),
        write: constant_of(0.25),
        flush: constant_of(1.0),
        byte_read: constant_of(0.001),
        byte_written: constant_of(0.002),
    }
}

#[test]
fn joules_are_the_sum_of_what_was_done() {
    let work = Work {
        seconds: 3.0,
        processors: 4.0,
        cpu_seconds: 1.5,
        reads: 10,
        writes: 20,
        flushes: 2,
        bytes_read: 1_000,
        bytes_written: 500,
    };
    let joules = model().joules(&work);
    let expected = Modelled { idle: 24.0, cpu: 15.0, reads: 6.0, writes: 6.0, flushes: 2.0 };
    assert_eq!(joules, expected);
    assert_eq!((joules.device(), joules.active(), joules.total()), (14.0, 29.0, 53.0));
    assert_eq!(model().joules(&Work::default()).total(), 0.0);
}

fn description() -> Description {
    let of = |unit: &str| Quantity { value: 3.0, unit: unit.into(), source: "data sheet".into() };
    Description {
        name: "mine".into(),
        idle_per_processor: of("mW"),
        cpu_second: of("J"),
        read: of("uJ"),
        write: of("mJ"),
        flush: of("J"),
        byte_read: of("nJ"),
        byte_written: of("pJ"),
    }
}

#[test]
fn a_description_gives_its_units() {
    let model = description().model().unwrap();
    assert_eq!((model.idle_per_processor.value, model.read.value), (3e-3, 3e-6));
    assert_eq!(model.byte_written.source, "data sheet");
}

#[test]
fn missing_units_sources_and_sense_are_refused() {
    let refused = |change: fn(&mut Description)| {
        let mut description = description();
        change(&mut description);
        let error = description.model().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.message().to_owned()
    };
    assert!(refused(|d| d.read.unit = String::new()).contains("read: unit ''; write J, mJ"));
    assert!(refused(|d| d.cpu_second.unit = "W".into()).contains("cpu_second"));
    assert!(refused(|d| d.idle_per_processor.unit = "J".into()).contains("write W, mW"));
    assert!(refused(|d| d.flush.value = -1.0).contains("no power or energy"));
    assert!(refused(|d| d.flush.value = f64::NAN).contains("no power or energy"));
    assert!(refused(|d| d.write.source = " ".into()).contains("no source"));
}
