use super::*;

#[test]
fn every_command_has_a_place_of_its_own() {
    let places: Vec<usize> = by_place().map(place_of).collect();
    assert_eq!(places, (0..PLACES).collect::<Vec<_>>());
    assert_eq!(place_of(table::command(table::quick_index(true))), table::quick_index(true));
}

#[test]
fn what_shards_tell_is_added_by_command() {
    let one = "cmdstat_get:calls=2,usec=10,usec_per_call=5.00,rejected_calls=1,failed_calls=0";
    let other = "cmdstat_get:calls=2,usec=7,usec_per_call=3.50,rejected_calls=0,failed_calls=3\r\n\
                 cmdstat_config|get:calls=1,usec=4,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n\
                 cmdstat_set:calls=0,usec=4,usec_per_call=0.00,rejected_calls=0,failed_calls=0";
    assert_eq!(
        merge_commandstats(&[one, other]),
        "cmdstat_get:calls=4,usec=17,usec_per_call=4.25,rejected_calls=1,failed_calls=3\r\n\
         cmdstat_config|get:calls=1,usec=4,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n"
    );
}
