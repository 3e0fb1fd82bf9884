// The little that is needed to build a page by hand: elements, texts that change only when they
// must, and lists that keep their rows, so that nothing jumps and focus stays where it is.

type Attributes = Record<string, string | number | boolean | EventListener | undefined>;

/** An element with attributes ("onclick" takes a listener) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, attributes: Record<string, string | number> = {}): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, String(value));
  }
  return element;
}

export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(element: Element, name: string, value: string | null): void {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** The element of the page with this id, which the template must hold. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element as T;
}

/** Something on the page that shows a `T`. */
export interface View<T> {
  root: Element;
  update(item: T): void;
}

/** Children of `parent`, one view per item; a view stays as long as its key does. */
export class KeyedList<T> {
  private readonly views = new Map<string, View<T>>();

  constructor(
    private readonly parent: Element,
    private readonly keyOf: (item: T) => string,
    private readonly create: (item: T) => View<T>,
  ) {}

  update(items: readonly T[]): void {
    const focused = document.activeElement;
    const keys = distinct(items.map(this.keyOf));
    const wanted = new Set(keys);
    for (const [key, view] of this.views) {
      if (wanted.has(key)) continue;
      view.root.remove();
      this.views.delete(key);
    }
    items.forEach((item, index) => {
      const key = keys[index] ?? "";
      let view = this.views.get(key);
      if (!view) this.views.set(key, (view = this.create(item)));
      view.update(item);
      const there = this.parent.children[index];
      if (there !== view.root) this.parent.insertBefore(view.root, there ?? null);
    });
    // What is moved loses the focus.
    const isLost = focused !== document.activeElement && this.parent.contains(focused);
    if (isLost) (focused as HTMLElement).focus({ preventScroll: true });
  }
}

/** The same keys, later doubles numbered: equal errors of one second are two rows. */
function distinct(keys: readonly string[]): string[] {
  const seen = new Map<string, number>();
  return keys.map((key) => {
    const before = seen.get(key) ?? 0;
    seen.set(key, before + 1);
    return before === 0 ? key : `${key} #${before + 1}`;
  });
}
