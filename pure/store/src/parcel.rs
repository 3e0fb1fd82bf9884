//! The content of one file: an object in a file of its own, or the objects of a unit. Here, and in
//! `log::Entry`, is decided which file an object is in; nobody else has to know.

use model::extent::FileName;
use model::id::ObjectId;
use model::units::Bytes;

use crate::layout;
use crate::log::Entry;
use crate::unit::{self, Directory, UnitId};

/// The objects that are published in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parcel {
    /// An object in a file of its own.
    Alone(ObjectId, Bytes),
    Unit(Directory),
}

/// The file that a part file becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartId {
    Object(ObjectId),
    Unit(UnitId),
}

impl Parcel {
    /// One object alone, several as a unit. None without objects, and where `Directory::new` gives
    /// none.
    pub fn new(objects: &[(ObjectId, Bytes)]) -> Option<Self> {
        match objects {
            [(object, len)] => Some(Self::Alone(*object, *len)),
            _ => Directory::new(objects.iter().copied()).map(Self::Unit),
        }
    }

    /// Its objects, and where in the file they are.
    pub fn entries(&self) -> Vec<(ObjectId, Entry)> {
        match self {
            Self::Alone(object, len) => vec![(*object, Entry::alone(*len))],
            Self::Unit(directory) => directory.entries(),
        }
    }

    /// The id in the name of its part file.
    pub fn part(&self) -> PartId {
        match self {
            Self::Alone(object, _) => PartId::Object(*object),
            Self::Unit(directory) => PartId::Unit(directory.id()),
        }
    }

    /// Its file.
    pub fn file(&self) -> FileName {
        match self {
            Self::Alone(object, _) => layout::object_file(object),
            Self::Unit(directory) => unit::unit_file(&directory.id()),
        }
    }

    /// The folder of its file.
    pub fn folder(&self) -> FileName {
        layout::folder_of(&self.file())
    }

    /// Size of its file.
    pub fn file_len(&self) -> Bytes {
        match self {
            Self::Alone(_, len) => layout::sections(*len).file_len,
            Self::Unit(directory) => directory.file_len(),
        }
    }

    /// The pages that end its file, and where they begin.
    pub fn end(&self) -> (Bytes, Vec<u8>) {
        match self {
            Self::Alone(object, len) => {
                let footer = layout::Footer { object: *object, len: *len };
                (layout::sections(*len).footer_offset, footer.encode().to_vec())
            }
            Self::Unit(directory) => {
                let pages = [directory.encode(), directory.footer().encode().to_vec()].concat();
                (directory.offset(), pages)
            }
        }
    }

    /// How many of its first objects fit into a file of this size.
    pub fn fitting(&self, room: Bytes) -> usize {
        let objects: Vec<_> = self.entries().iter().map(|(id, of)| (*id, of.len)).collect();
        assert!(!objects.is_empty(), "a file has an object");
        let counts: Vec<usize> = (1..=objects.len()).collect();
        // Each is longer than the one before.
        counts.partition_point(|count| {
            Self::new(&objects[..*count]).is_some_and(|parcel| parcel.file_len() <= room)
        })
    }

    /// The first so many of its objects, where they are in it.
    pub fn first(&self, count: usize) -> Option<Self> {
        match self {
            Self::Alone(..) => (count == 1).then(|| self.clone()),
            Self::Unit(directory) => {
                let first = directory.places().iter().take(count);
                Directory::new(first.map(|place| (place.object, place.len))).map(Self::Unit)
            }
        }
    }
}

impl PartId {
    /// Its file.
    pub fn file(&self) -> FileName {
        match self {
            Self::Object(object) => layout::part_file(object),
            Self::Unit(unit) => unit::part_file(unit),
        }
    }

    /// The part file that a name in `fill/` (without the folder) stands for.
    pub fn parse(name: &str) -> Option<Self> {
        let object = || layout::parse_part_name(name).map(Self::Object);
        object().or_else(|| unit::parse_part_name(name).map(Self::Unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_says_by_its_name_of_what() {
        let object = PartId::Object(ObjectId([7; 32]));
        let unit = PartId::Unit(UnitId([7; 32]));
        for part in [object, unit] {
            let file = part.file();
            assert_eq!(PartId::parse(&file.0["fill/".len()..]), Some(part));
        }
        assert_eq!(PartId::parse("probe"), None);
    }

    #[test]
    fn one_object_is_alone_and_several_are_a_unit() {
        let object = |n| (ObjectId([n; 32]), Bytes(5000));
        assert_eq!(Parcel::new(&[]), None);
        let alone = Parcel::new(&[object(1)]).unwrap();
        assert_eq!(alone.entries(), [(object(1).0, Entry::alone(Bytes(5000)))]);
        assert_eq!(&*alone.folder().0, "objects/01");
        let unit = Parcel::new(&[object(1), object(2)]).unwrap();
        assert_eq!(unit.entries()[1].1.offset, Bytes(8192));
        assert_eq!(&*unit.folder().0, "units");
        for parcel in [alone, unit] {
            let (offset, pages) = parcel.end();
            assert_eq!(offset + Bytes::of(pages.len()), parcel.file_len());
        }
    }
    #[test]
    fn as_many_objects_fit_as_the_room_has_for_them_and_for_what_says_so() {
        let objects: Vec<_> = (1..=3).map(|n| (ObjectId([n; 32]), Bytes(5000))).collect();
        let parcel = Parcel::new(&objects).unwrap();
        for count in 1..=3 {
            let len = Parcel::new(&objects[..count]).unwrap().file_len();
            assert_eq!(parcel.fitting(len), count);
            assert_eq!(parcel.fitting(len - Bytes(1)), count - 1);
        }
        assert_eq!(parcel.fitting(Bytes::mib(1)), 3);
    }
}
