//! Where on earth sites and clients are, and how near one is to another.

use std::fmt;
use std::str::FromStr;

/// A place as far as it is known; all of it may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// ISO 3166-1, two letters: `DE`.
    pub country: Option<Box<str>>,
    /// ISO 3166-2: `DE-BE`.
    pub region: Option<Box<str>>,
    pub city: Option<Box<str>>,
    pub point: Option<Point>,
}

/// A point on the globe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    latitude_e6: i32,
    longitude_e6: i32,
}

/// How near a site is to a client, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nearness {
    pub shares: Shares,
    /// The way in kilometres, where both points are known; [`Nearness::FAR`] sorts unknown ones
    /// last.
    pub km: u32,
}

/// The smallest part of the earth that both are known to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shares {
    City,
    Region,
    Country,
    Nothing,
}

impl Nearness {
    /// The way between places of which one has no point.
    pub const FAR: u32 = u32::MAX;
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { shares: Shares::Nothing, km: Self::FAR };

    /// How near two places are, as far as both are known.
    pub fn of(one: Option<&Place>, other: Option<&Place>) -> Self {
        let (Some(one), Some(other)) = (one, other) else { return Self::UNKNOWN };
        let same = |a: &Option<Box<str>>, b: &Option<Box<str>>| {
            a.as_ref().is_some_and(|a| Some(a) == b.as_ref())
        };
        let in_country = same(&one.country, &other.country);
        let shares = match () {
            // Cities of one name are in many countries.
            () if in_country && same(&one.city, &other.city) => Shares::City,
            () if same(&one.region, &other.region) => Shares::Region,
            () if in_country => Shares::Country,
            () => Shares::Nothing,
        };
        let km = one.point.zip(other.point).map_or(Self::FAR, |(a, b)| a.km_to(b));
        Self { shares, km }
    }
}

/// A text that is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write degrees north and east, country, region and city, or some of them in this order: \
     \"52.52,13.405 DE DE-BE Berlin\""
)]
pub struct NotAPlace;

impl FromStr for Place {
    type Err = NotAPlace;

    /// Reads the form that [`fmt::Display`] writes. A region says its country.
    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let mut words = text.split_whitespace().peekable();
        let mut place = Self::default();
        if let Some((north, east)) = words.peek().and_then(|word| word.split_once(',')) {
            let degrees = |text: &str| text.parse::<f64>().map_err(|_| NotAPlace);
            place.point = Some(Point::new(degrees(north)?, degrees(east)?).ok_or(NotAPlace)?);
            words.next();
        }
        let is_country =
            |word: &&str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_alphabetic());
        place.country = words.next_if(is_country).map(|word| word.to_ascii_uppercase().into());
        let is_region = |word: &&str| {
            word.split_once('-').is_some_and(|(country, rest)| {
                is_country(&country) && (1..=3).contains(&rest.len()) && rest.is_ascii()
            })
        };
        if let Some(region) = words.next_if(is_region) {
            let region = region.to_ascii_uppercase();
            place.country.get_or_insert_with(|| region[..2].into());
            place.region = Some(region.into());
        }
        let city: Vec<&str> = words.collect();
        let city = city.join(" ");
        if CITY_LEN_MAX < city.chars().count() {
            return Err(NotAPlace);
        }
        place.city = Some(city.into_boxed_str()).filter(|city| !city.is_empty());
        if place == Self::default() { Err(NotAPlace) } else { Ok(place) }
    }
}

/// Longest name of a city in characters.
const CITY_LEN_MAX: usize = 64;

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = self.point.map(|at| format!("{},{}", at.latitude(), at.longitude()));
        let rest = [&self.country, &self.region, &self.city].into_iter().flatten();
        let parts: Vec<&str> =
            point.as_deref().into_iter().chain(rest.map(|part| &**part)).collect();
        f.write_str(&parts.join(" "))
    }
}

impl fmt::Display for Nearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = match self.shares {
            Shares::City => "in the same city",
            Shares::Region => "in the same region",
            Shares::Country => "in the same country",
            Shares::Nothing if self.km == Self::FAR => return f.write_str("nobody knows how far"),
            Shares::Nothing => return write!(f, "{} km away", self.km),
        };
        f.write_str(shares)?;
        if self.km == Self::FAR { Ok(()) } else { write!(f, ", {} km away", self.km) }
    }
}

impl Point {
    /// In degrees, north and east; none for points that are not on the globe.
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let fits = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        #[expect(clippy::as_conversions, reason = "at most 180,000,000")]
        let e6 = |degrees: f64| (degrees * 1e6).round() as i32;
        fits.then(|| Self { latitude_e6: e6(latitude), longitude_e6: e6(longitude) })
    }

    /// Degrees north.
    pub fn latitude(self) -> f64 {
        f64::from(self.latitude_e6) / 1e6
    }

    /// Degrees east.
    pub fn longitude(self) -> f64 {
        f64::from(self.longitude_e6) / 1e6
    }

    /// The way along a great circle of a globe of 6,371 km, in whole kilometres (the haversine).
    pub fn km_to(self, other: Self) -> u32 {
        let (a, b) = (self.latitude().to_radians(), other.latitude().to_radians());
        let across = (other.longitude() - self.longitude()).to_radians();
        let half = |angle: f64| (angle / 2.0).sin().powi(2);
        let share = (half(b - a) + a.cos() * b.cos() * half(across)).clamp(0.0, 1.0);
        let km = 2.0 * 6371.0 * share.sqrt().asin();
        #[expect(clippy::as_conversions, clippy::cast_sign_loss, reason = "0 to 20,015")]
        let km = km.round() as u32;
        km
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(country: &str, city: &str, point: Option<(f64, f64)>) -> Place {
        Place {
            country: Some(country.into()),
            region: None,
            city: Some(city.into()),
            point: point.map(|(north, east)| Point::new(north, east).unwrap()),
        }
    }

    #[test]
    fn the_way_is_that_of_maps() {
        let berlin = Point::new(52.52, 13.405).unwrap();
        let sydney = Point::new(-33.869, 151.209).unwrap();
        let (there, back) = (berlin.km_to(sydney), sydney.km_to(berlin));
        assert!(there == back && there.abs_diff(16_090) < 20, "{there}");
        assert_eq!(berlin.km_to(berlin), 0);
        let (pole, other) = (Point::new(90.0, 0.0).unwrap(), Point::new(-90.0, 180.0).unwrap());
        assert_eq!(pole.km_to(other), 20_015);
        for (north, east) in [(90.1, 0.0), (0.0, -180.1), (f64::NAN, 0.0)] {
            assert_eq!(Point::new(north, east), None);
        }
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let check = |text: &str, wanted: &str| {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), wanted);
            assert_eq!(wanted.parse(), Ok(place));
        };
        check("52.52,13.405 DE DE-BE Berlin", "52.52,13.405 DE DE-BE Berlin");
        check("de-be", "DE DE-BE");
        check(" fr  Aix en  Provence ", "FR Aix en Provence");
        check("-33.9,151.2", "-33.9,151.2");
        check("Berlin", "Berlin");
        for odd in ["", " ", "91,0", "x,y DE", "1,", &"x".repeat(65)] {
            assert_eq!(odd.parse::<Place>(), Err(NotAPlace), "{odd}");
        }
    }

    #[test]
    fn a_city_of_the_same_name_elsewhere_is_not_near() {
        let near = |a: &Place, b: &Place| Nearness::of(Some(a), Some(b));
        let (paris, texas) = (place("FR", "Paris", None), place("US", "Paris", None));
        assert_eq!(near(&paris, &texas), Nearness::UNKNOWN);
        let lyon = place("FR", "Lyon", Some((45.76, 4.84)));
        assert_eq!(near(&paris, &lyon), Nearness { shares: Shares::Country, km: Nearness::FAR });
        assert!(near(&paris, &paris) < near(&paris, &lyon));
        let nice = place("FR", "Nice", Some((43.7, 7.27)));
        assert_eq!(near(&lyon, &nice).to_string(), "in the same country, 299 km away");
        assert_eq!(Nearness::of(None, Some(&lyon)).to_string(), "nobody knows how far");
    }
}
