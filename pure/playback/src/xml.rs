//! A small tree of an XML document, with the place of every element in the text.

use std::ops::Range;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

use crate::PlaylistError;

/// An element. Comments, instructions and the text between child elements are left out.
#[derive(Debug, Default)]
pub(crate) struct Element {
    /// As written: with its prefix, if any.
    pub(crate) qualified: String,
    attributes: Vec<(String, String)>,
    pub(crate) children: Vec<Self>,
    /// Text directly inside, entities resolved, white space around taken off.
    pub(crate) text: String,
    /// The element in the document, from `<` to the `>` of its end tag.
    pub(crate) span: Range<usize>,
    pub(crate) start_tag: Range<usize>,
}

impl Element {
    /// The name without a prefix.
    pub(crate) fn name(&self) -> &str {
        local(&self.qualified)
    }

    /// The attribute of this name, prefixes not looked at.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(qualified, _)| local(qualified) == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name() == name)
    }

    pub(crate) fn first(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name() == name)
    }

    /// This element and all below it.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }
}

pub(crate) fn parse(text: &str) -> Result<Element, PlaylistError> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    loop {
        let at = position(&reader);
        let fault = |reason: String| PlaylistError::Xml { at, reason };
        let event = reader.read_event().map_err(|error| fault(error.to_string()))?;
        let range = at..position(&reader);
        let closed = match event {
            Event::Start(tag) => {
                if DEPTH_MAX <= open.len() {
                    return Err(fault(format!("more than {DEPTH_MAX} elements inside each other")));
                }
                open.push(element(&tag, range).map_err(fault)?);
                None
            }
            Event::Empty(tag) => Some(element(&tag, range).map_err(fault)?),
            Event::End(_) => open.pop().map(|element| ended(element, range.end)),
            Event::Text(part) => {
                append(&mut open, &part.xml10_content());
                None
            }
            Event::CData(part) => {
                append(&mut open, &part.xml10_content());
                None
            }
            Event::GeneralRef(entity) => {
                append(&mut open, &resolve(&entity).map_err(fault)?);
                None
            }
            Event::DocType(_) => return Err(fault("a DOCTYPE has no place here".to_owned())),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => None,
            Event::Eof => break,
        };
        match (closed, open.last_mut()) {
            (Some(element), Some(parent)) => parent.children.push(element),
            (Some(_), None) if root.is_some() => {
                return Err(fault("a second root element".to_owned()));
            }
            (Some(element), None) => root = Some(element),
            (None, _) => {}
        }
    }
    let unended = open.pop().map(|element| format!("<{}> is not ended", element.qualified));
    let fault = |reason| PlaylistError::Xml { at: text.len(), reason };
    match (unended, root) {
        (Some(reason), _) => Err(fault(reason)),
        (None, None) => Err(fault("no element".to_owned())),
        (None, Some(root)) => Ok(root),
    }
}

fn element(tag: &BytesStart<'_>, range: Range<usize>) -> Result<Element, String> {
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        if ATTRIBUTES_MAX <= attributes.len() {
            return Err(format!("an element with more than {ATTRIBUTES_MAX} attributes"));
        }
        let attribute = attribute.map_err(|error| error.to_string())?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        let value = value.map_err(|error| error.to_string())?.into_owned();
        attributes.push((attribute.key.as_ref().to_owned(), value));
    }
    Ok(Element {
        qualified: tag.name().as_ref().to_owned(),
        attributes,
        span: range.clone(),
        start_tag: range,
        ..Element::default()
    })
}

fn ended(mut element: Element, end: usize) -> Element {
    element.span.end = end;
    element.text = element.text.trim().to_owned();
    element
}

fn append(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn resolve(entity: &BytesRef<'_>) -> Result<String, String> {
    if let Some(character) = entity.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(character.to_string());
    }
    let name = entity.xml10_content();
    let known = quick_xml::escape::resolve_predefined_entity(&name);
    known.map(str::to_owned).ok_or_else(|| format!("the entity &{name}; is not known"))
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

fn local(qualified: &str) -> &str {
    qualified.rsplit(':').next().unwrap_or(qualified)
}

/// Elements inside each other. An MPD has eight or so.
const DEPTH_MAX: usize = 32;

/// Attributes of one element. An MPD's has twenty or so; each is compared with those before it.
const ATTRIBUTES_MAX: usize = 64;
