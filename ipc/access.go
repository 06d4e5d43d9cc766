package ipc

import "slices"

// access is the table of who may call which host and control method. A role that is not listed may not.
// Services of workers are not in it: only the supervisor holds those connections.
var access = map[string][]string{
	"/hermes.host.v1.Inbox/Accept": {RoleGateway},

	"/hermes.host.v1.Turns/Load":      {RoleAgent},
	"/hermes.host.v1.Turns/Append":    {RoleAgent},
	"/hermes.host.v1.Turns/Finish":    {RoleAgent},
	"/hermes.host.v1.Turns/Follow":    {RoleGateway},
	"/hermes.host.v1.Turns/Interrupt": {RoleGateway},
	"/hermes.host.v1.Turns/Decide":    {RoleGateway},

	"/hermes.host.v1.Turns/ListOpen": {RoleGateway},
	"/hermes.host.v1.Turns/Retry":    {RoleGateway, RoleOperator},
	"/hermes.host.v1.Turns/Steer":    {RoleGateway},

	"/hermes.host.v1.Sessions/Get":      {RoleGateway, RoleOperator},
	"/hermes.host.v1.Sessions/List":     {RoleGateway, RoleOperator},
	"/hermes.host.v1.Sessions/SetTitle": {RoleGateway, RoleOperator},
	"/hermes.host.v1.Sessions/Bind":     {RoleGateway},
	"/hermes.host.v1.Sessions/SetModel": {RoleGateway, RoleOperator},
	"/hermes.host.v1.Sessions/Undo":     {RoleGateway, RoleOperator},
	"/hermes.host.v1.Sessions/End":      {RoleGateway},

	"/hermes.host.v1.Confirmations/Ask":    {RoleGateway},
	"/hermes.host.v1.Confirmations/Answer": {RoleGateway},
	"/hermes.host.v1.Confirmations/Get":    {RoleGateway},
	"/hermes.host.v1.Confirmations/List":   {RoleGateway},
	"/hermes.host.v1.Confirmations/Done":   {RoleGateway},

	"/hermes.host.v1.Pairing/Check":   {RoleGateway},
	"/hermes.host.v1.Pairing/Request": {RoleGateway},

	"/hermes.host.v1.Lifecycle/Restart": {RoleGateway},

	"/hermes.host.v1.Tools/List": {RoleAgent},
	"/hermes.host.v1.Tools/Call": {RoleAgent},

	"/hermes.host.v1.Boards/CreateTask": {RoleTools, RoleOperator},
	"/hermes.host.v1.Boards/ListTasks":  {RoleTools, RoleKanban, RoleOperator},
	"/hermes.host.v1.Boards/GetTask":    {RoleTools, RoleKanban, RoleOperator},
	"/hermes.host.v1.Boards/SetStatus":  {RoleTools, RoleOperator},
	"/hermes.host.v1.Boards/Subscribe":  {RoleTools, RoleOperator},
	"/hermes.host.v1.Boards/Unseen":     {RoleKanban},
	"/hermes.host.v1.Boards/Notify":     {RoleKanban},

	"/hermes.host.v1.Search/Discover": {RoleTools},
	"/hermes.host.v1.Search/Scroll":   {RoleTools},
	"/hermes.host.v1.Search/Read":     {RoleTools},
	"/hermes.host.v1.Search/Browse":   {RoleTools},

	"/hermes.host.v1.Events/Publish": {RoleAgent, RoleTools, RoleGateway, RoleKanban, RoleCron},
	"/hermes.host.v1.Config/Secret":  {RoleAgent, RoleTools, RoleGateway, RoleCron, RolePlugin},

	"/hermes.control.v1.Maintenance/Copy":      {RoleOperator},
	"/hermes.control.v1.Maintenance/Check":     {RoleOperator},
	"/hermes.control.v1.Maintenance/Optimize":  {RoleOperator},
	"/hermes.control.v1.Maintenance/Mend":      {RoleOperator},
	"/hermes.control.v1.Maintenance/Convert":   {RoleOperator},
	"/hermes.control.v1.BoardStatistics/Count": {RoleOperator},

	"/hermes.control.v1.Control/Status":        {RoleOperator},
	"/hermes.control.v1.Control/RestartWorker": {RoleOperator},
	"/hermes.control.v1.Control/StopWorker":    {RoleOperator},
	"/hermes.control.v1.Control/StartWorker":   {RoleOperator},
	"/hermes.control.v1.Control/Shutdown":      {RoleOperator},
	"/hermes.control.v1.Control/Logs":          {RoleOperator},
	"/hermes.control.v1.Control/Events":        {RoleOperator},
	"/hermes.control.v1.Control/Fds":           {RoleOperator},

	"/hermes.control.v1.Pairing/List":          {RoleOperator},
	"/hermes.control.v1.Pairing/Approve":       {RoleOperator},
	"/hermes.control.v1.Pairing/Revoke":        {RoleOperator},
	"/hermes.control.v1.Pairing/ClearPending":  {RoleOperator},
	"/hermes.control.v1.Timeline/Tell":         {RoleOperator},
	"/hermes.control.v1.Sessions/List":         {RoleOperator},
	"/hermes.control.v1.Sessions/Show":         {RoleOperator},
	"/hermes.control.v1.Sessions/Search":       {RoleOperator},
	"/hermes.control.v1.Sessions/Rename":       {RoleOperator},
	"/hermes.control.v1.Sessions/Archive":      {RoleOperator},
	"/hermes.control.v1.Sessions/Delete":       {RoleOperator},
	"/hermes.control.v1.Sessions/Prune":        {RoleOperator},
	"/hermes.control.v1.Sessions/Stats":        {RoleOperator},
	"/hermes.control.v1.Sessions/Select":       {RoleOperator},
	"/hermes.control.v1.Sessions/Export":       {RoleOperator},
	"/hermes.control.v1.Sessions/Import":       {RoleOperator},
	"/hermes.control.v1.Plugins/ListPlugins":   {RoleOperator},
	"/hermes.control.v1.Plugins/AddPlugin":     {RoleOperator},
	"/hermes.control.v1.Plugins/RemovePlugin":  {RoleOperator},
	"/hermes.control.v1.Plugins/EnablePlugin":  {RoleOperator},
	"/hermes.control.v1.Plugins/DisablePlugin": {RoleOperator},
	"/hermes.control.v1.Operations/Series":     {RoleOperator},
	"/hermes.control.v1.Operations/Drain":      {RoleOperator},
	"/hermes.control.v1.Operations/Resume":     {RoleOperator},
	"/hermes.control.v1.Operations/Profile":    {RoleOperator},
	"/hermes.control.v1.Operations/Ping":       {RoleOperator},
	"/hermes.control.v1.Operations/Reload":     {RoleOperator},

	"/hermes.control.v1.Chat/Send":        {RoleOperator},
	"/hermes.control.v1.Chat/Follow":      {RoleOperator},
	"/hermes.control.v1.Chat/Interrupt":   {RoleOperator},
	"/hermes.control.v1.Chat/Decide":      {RoleOperator},
	"/hermes.control.v1.Chat/Notices":     {RoleOperator},
	"/hermes.control.v1.Chat/Acknowledge": {RoleOperator},
}

// Allowed says whether role may call a method, named as gRPC names it ("/package.Service/Method").
func Allowed(role, method string) bool {
	return slices.Contains(access[method], role)
}
