use super::*;

#[test]
fn every_subcommand_that_takes_arguments_says_which() {
    for container in table::commands().filter(|command| !command.subcommands.is_empty()) {
        assert!(table::subcommand(container, b"help").is_some(), "{} has no HELP", container.name);
        for command in container.subcommands {
            let may_take_some = command.arity < 0 || command.arity > 2;
            let has_forms = !forms(command.name).is_empty();
            assert_eq!(may_take_some, has_forms, "{} {}", command.name, command.arity);
        }
    }
    for (name, _) in ARGUMENTS {
        assert!(table::find(name.as_bytes()).is_some(), "{name} is no command");
    }
}
