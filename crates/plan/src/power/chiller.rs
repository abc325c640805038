//! Chillers: the regressions of DOE2 with the curves of the California Energy Commission for water-cooled
//! centrifugal machines, and the polynomial that the source prints for its example.
//!
//! The source names the method and omits the coefficients. The public ones reproduce its polynomial: the
//! linear term exactly, the quadratic within 0.2 %, the constant within 0.2 % (538.7 printed, 537.8 here;
//! probably two digits changed places), for a chiller whose full load is what it can carry at the
//! temperatures of its design, not at those of its rating.

/// Coefficients of 1, s, s², c, c², s·c, with the leaving water s and the condenser water c in °F.
type Surface = [f64; 6];

/// Capacity beside the rated one.
const CAPACITY: Surface = [-0.29861976, 0.02996076, -0.00080125, 0.01736268, -0.00032606, 0.00063139];
/// Power for a unit of heat beside the rated one.
const INPUT_RATIO: Surface = [0.51777196, -0.00400363, 0.00002028, 0.00698793, 0.0000829, -0.00015467];
/// Power beside the one at full load, over the part of the load: coefficients of 1, p, p².
const PART_LOAD: [f64; 3] = [0.17149273, 0.58820208, 0.23737257];

/// The coefficients of U², U and 1 that the source prints, in kW: 8 MW, "3,200 kW", condenser at 85 °F,
/// water at 45 °F, l = 0.
pub const PRINTED: [f64; 3] = [742.8, 1844.6, 538.7];

fn surface(of: &Surface, water_f: f64, condenser_f: f64) -> f64 {
    let [constant, s, ss, c, cc, sc] = of;
    constant
        + s * water_f
        + ss * water_f * water_f
        + c * condenser_f
        + cc * condenser_f * condenser_f
        + sc * water_f * condenser_f
}

/// What a chiller can carry away at these temperatures (°F), beside its rating.
pub fn capacity_factor(water_f: f64, condenser_f: f64) -> f64 {
    surface(&CAPACITY, water_f, condenser_f)
}

/// Power for a unit of heat at these temperatures (°F), beside the rating.
pub fn input_factor(water_f: f64, condenser_f: f64) -> f64 {
    surface(&INPUT_RATIO, water_f, condenser_f)
}

/// Power at a part of the load, beside the power at full load.
pub fn part_load_factor(part: f64) -> f64 {
    let [constant, linear, quadratic] = PART_LOAD;
    constant + linear * part + quadratic * part * part
}

/// A chiller plant by its rating.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chiller {
    /// Heat carried away at the rating, kW.
    pub heat_kw: f64,
    /// Power taken at the rating, kW.
    pub power_kw: f64,
}

impl Chiller {
    /// A chiller whose full load at these temperatures (°F) is `heat_kw`, and that takes `power_per_heat` of its
    /// heat at the rating.
    pub fn made_for(heat_kw: f64, power_per_heat: f64, water_f: f64, condenser_f: f64) -> Chiller {
        let rated = heat_kw / capacity_factor(water_f, condenser_f);
        Chiller { heat_kw: rated, power_kw: rated * power_per_heat }
    }

    /// Part of what it can carry away at these temperatures; above 1 it is overloaded.
    pub fn part_load(&self, heat_kw: f64, water_f: f64, condenser_f: f64) -> f64 {
        heat_kw / (self.heat_kw * capacity_factor(water_f, condenser_f))
    }

    /// Power for carrying `heat_kw` away, kW. The caller looks at [`Chiller::part_load`] first.
    pub fn power(&self, heat_kw: f64, water_f: f64, condenser_f: f64) -> f64 {
        let part = self.part_load(heat_kw, water_f, condenser_f);
        self.power_kw
            * capacity_factor(water_f, condenser_f)
            * input_factor(water_f, condenser_f)
            * part_load_factor(part)
    }

    /// The coefficients of p², p and 1, kW, over the part p of what it can carry at these temperatures.
    pub fn polynomial(&self, water_f: f64, condenser_f: f64) -> [f64; 3] {
        let scale =
            self.power_kw * capacity_factor(water_f, condenser_f) * input_factor(water_f, condenser_f);
        let [constant, linear, quadratic] = PART_LOAD;
        [scale * quadratic, scale * linear, scale * constant]
    }
}

/// The printed polynomial at a utilisation, kW.
pub fn printed_kw(utilisation: f64) -> f64 {
    let [quadratic, linear, constant] = PRINTED;
    quadratic * utilisation * utilisation + linear * utilisation + constant
}
