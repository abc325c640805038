//! What little there is of scripting and modules: nothing to flush, nothing to list.

use crate::context::{Halt, fail, fail_with};
use crate::control::{Control, Flow};

/// `FUNCTION LIST`: there are none.
pub(crate) fn function_list(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let (mut index, mut has_name, mut has_code) = (2, false, false);
    while let Some(word) = args.get(index) {
        match word.to_ascii_lowercase().as_slice() {
            b"withcode" if !has_code => has_code = true,
            b"libraryname" if !has_name => {
                if args.get(index + 1).is_none() {
                    return fail("ERR library name argument was not given");
                }
                has_name = true;
                index += 1;
            }
            _ => return fail_with(format!("ERR Unknown argument {}", String::from_utf8_lossy(word))),
        }
        index += 1;
    }
    control.reply.array(0);
    Ok(Flow::Done)
}

/// `MODULE LIST`: there are none.
pub(crate) fn module_list(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.array(0);
    Ok(Flow::Done)
}

pub(crate) fn function_flush(control: &mut Control<'_>) -> Result<Flow, Halt> {
    match (control.args.len(), control.args.get(2)) {
        (2, _) => {}
        (3, Some(mode)) if mode.eq_ignore_ascii_case(b"ASYNC") || mode.eq_ignore_ascii_case(b"SYNC") => {}
        _ => return fail("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
    }
    control.reply.ok();
    Ok(Flow::Done)
}
