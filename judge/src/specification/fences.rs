//! The specification of a counter of fencing tokens: each draw is higher than every earlier one.

use stateright::semantics::SequentialSpec;

#[derive(Clone, Copy, Debug, Default)]
pub struct Fences {
    pub last: i64,
}

#[derive(Clone, Copy, Debug)]
pub struct Draw;

impl SequentialSpec for Fences {
    type Op = Draw;
    type Ret = i64;

    fn invoke(&mut self, _: &Draw) -> i64 {
        self.last += 1;
        self.last
    }

    fn is_valid_step(&mut self, _: &Draw, fence: &i64) -> bool {
        let rises = *fence > self.last;
        self.last = *fence;
        rises
    }
}
