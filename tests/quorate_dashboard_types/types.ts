// What a dashboard of the chart may be, as the package @grafana/schema beside this file says it.  JSON with a field
// that is not in a type is refused.  Where the package says too little or too much, a comment gives the reason.
import type { AnnotationQuery, Dashboard, DataQuery, DataSourceRef, FieldConfig, Panel, RowPanel } from "@grafana/schema";
import type * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as stateTimeline from "@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen";
import type * as table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type * as timeSeries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
import type { PrometheusDataQuery } from "../grafana-10/node_modules/@grafana/schema/dist/esm/raw/composable/prometheus/dataquery/x/PrometheusDataQuery_types.gen";

/** T as JSON has it: the values of enums of strings are strings. */
type Plain<T> = 0 extends 1 & T
  ? T // any
  : T extends string
    ? `${T}`
    : T extends (infer Element)[]
      ? Plain<Element>[]
      : T extends object
        ? { [Key in keyof T]: Plain<T[Key]> }
        : T;

/** T, in which these fields may be absent or unknown. */
type Excused<T, Fields extends string> = Omit<T, Fields> & { [Key in Fields & keyof T]?: T[Key] };

// Only the package of Grafana 10 has what Prometheus is asked; the fields of every query are those of each version.
type Target = Omit<PrometheusDataQuery, keyof DataQuery> & DataQuery & { datasource: DataSourceRef };

// The package leaves links open.
interface Link {
  title: string;
  url: string;
  targetBlank?: boolean;
}

type Common = Omit<FieldConfig, "custom" | "links"> & { links?: Link[] };

// The package leaves `custom` open: each kind of panel has its own.
type Defaults<Custom> = Common & { custom?: Custom };

// The package has any text as `id` and anything as `value`: Grafana looks for a field of the configuration by its path.
type Property<Fields, Before extends string> = {
  [Key in keyof Fields & string]-?: { id: `${Before}${Key}`; value: NonNullable<Fields[Key]> };
}[keyof Fields & string];

interface Override<Custom> {
  matcher: { id: "byName"; options: string };
  properties: (Property<Common, ""> | Property<Custom, "custom.">)[];
}

type Of<Type extends string, Options, Custom> = Omit<Panel, "type" | "options" | "fieldConfig" | "targets"> & {
  type: Type;
  options: Options;
  fieldConfig: { defaults: Defaults<Custom>; overrides: Override<Custom>[] };
  targets: Target[];
};

// Grafana 10 does not know this one; others have a default, and it matters only where showPercentChange is true.
type StatOptions = Excused<stat.Options, "percentChangeColorMode">;

/** Type of a panel -> what such a panel may be. */
export interface Panels {
  row: Plain<RowPanel>;
  stat: Plain<Of<"stat", StatOptions, {}>>;
  "state-timeline": Plain<Of<"state-timeline", stateTimeline.Options, stateTimeline.FieldConfig>>;
  table: Plain<Of<"table", table.Options, table.FieldConfig>>;
  timeseries: Plain<Of<"timeseries", timeSeries.Options, timeSeries.FieldConfig>>;
}

// Grafana 10 reads the expression from here only; later versions move it to `target`, as their types have it.
type Annotation = AnnotationQuery & { expr: string };

/** A dashboard without its panels. */
export type Page = Plain<Omit<Dashboard, "panels" | "annotations"> & { annotations: { list: Annotation[] } }>;
