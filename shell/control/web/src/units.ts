// Numbers for people: three digits at most, always with their unit, decimal prefixes.

export interface Quantity {
  value: string;
  unit: string;
}

const PREFIXES = ["", "k", "M", "G", "T", "P"];

function digits(value: number): string {
  if (value >= 100 || value === 0) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(amount: number, unit: string): Quantity {
  let value = Math.max(0, amount);
  let step = 0;
  // 999.5 would print as 1000: the next prefix says it better.
  while (value >= 999.5 && step < PREFIXES.length - 1) {
    value /= 1000;
    step += 1;
  }
  return { value: step === 0 ? value.toFixed(0) : digits(value), unit: PREFIXES[step] + unit };
}

export const bitRate = (bitsPerSecond: number): Quantity => scaled(bitsPerSecond, "b/s");
export const bytes = (count: number): Quantity => scaled(count, "B");
export const percent = (share: number): Quantity => ({
  value: share > 0 && share < 9.95 ? share.toFixed(1) : share.toFixed(0),
  unit: "%",
});

/** "1.42 Gb/s", with a space that does not break. */
export const text = ({ value, unit }: Quantity): string => `${value}\u00a0${unit}`;

/** The same without needless zeros, for axes: "5 Gb/s". */
export const short = ({ value, unit }: Quantity): string => `${Number(value)}\u00a0${unit}`;

/** "412 GB of 1.92 TB". */
export const part = (held: number, whole: number): string =>
  `${text(bytes(held))} of ${text(bytes(whole))}`;

const group = new Intl.NumberFormat("en-US");
export const count = (value: number): string => group.format(value);

export const plural = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)}\u00a0${value === 1 ? one : many}`;

/** "14 s", "3 min", "2 h 5 min", "4 d 3 h". */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  const two = (big: number, bigUnit: string, small: number, smallUnit: string) =>
    small === 0
      ? `${big}\u00a0${bigUnit}`
      : `${big}\u00a0${bigUnit}\u00a0${small}\u00a0${smallUnit}`;
  if (s < 60) return `${s}\u00a0s`;
  if (s < 3_600) return `${Math.floor(s / 60)}\u00a0min`;
  if (s < 86_400) return two(Math.floor(s / 3_600), "h", Math.floor((s % 3_600) / 60), "min");
  return two(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3_600), "h");
}

/** Position in a film: "1:07", "1:02:45". */
export function position(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  const tail = `${String(Math.floor((s % 3_600) / 60))}:${String(s % 60).padStart(2, "0")}`;
  return s < 3_600 ? tail : `${Math.floor(s / 3_600)}:${tail.padStart(5, "0")}`;
}

/** The smallest of 1, 2, 5 times a power of ten that is not below `value`. */
export function roundUp(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((factor) => value <= factor * power * 1.000001) ?? 10;
  return step * power;
}
