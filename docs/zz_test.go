package docs
import ("testing";"fmt";"time"
"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr")
func TestZZ(t *testing.T){
 at,_:=time.Parse(time.RFC3339,"2026-03-01T10:00:00.5Z")
 for _,c:=range []struct{u expr.Use; e,p string}{
  {expr.ForKey,"payload.id",`{"id":9007199254740993}`},
  {expr.ForKey,"payload.id",`{"id":1.0}`},{expr.ForKey,"payload.id",`{"id":"7"}`},{expr.ForKey,"payload.id",`{"id":7}`},
  {expr.ForKey,"payload.id",`{"id":null}`},{expr.ForKey,"payload.id",`{}`},{expr.ForKey,"payload.id",`not json`},{expr.ForKey,"payload.id",`[1]`},{expr.ForKey,"payload.id.x",`{"id":"a"}`},
  {expr.ForKey,"payload.id",`{"id":{}}`},{expr.ForKey,"payload.id",`{"id":""}`},
  {expr.ForKey,"attributes.a",`{}`},{expr.ForKey,"message.orderingKey",`{}`},{expr.ForText,"message.publishTime",`{}`},
  {expr.ForVariable,"payload.price",`{"price":1.10}`},{expr.ForVariable,"payload.price * 2.0",`{"price":1.10}`},{expr.ForVariable,"payload.n + 1",`{"n":9007199254740993}`},
  {expr.ForVariable,"{'a': payload.a, 'b': 'x'}",`{"a":[1, 2.50]}`},{expr.ForVariable,"payload.a",`{"a":[1,  2.50]}`},
  {expr.ForVariable,"payload",`{"a":1}`},{expr.ForVariable,"payload",`x`},{expr.ForVariable,"payload.a",`{"a":null}`},
  {expr.ForText,"payload.v",`{"v":1.10}`},{expr.ForSequence,"payload.v",`{"v":1e2}`},{expr.ForSequence,"payload.v",`{"v":"7"}`},{expr.ForSequence,"int(payload.v)",`{"v":"7"}`},
  {expr.ForMatch,"payload.amount > 10",`{"amount":10.5}`},{expr.ForMatch,"payload.price == 1.1",`{"price":1.10}`},{expr.ForMatch,"attributes.x != 'a'",`{}`},{expr.ForMatch,"has(payload.x)",`{}`},{expr.ForMatch,"has(payload.x)",`zz`},{expr.ForMatch,"!has(payload.x)",`zz`},
  {expr.ForKey,"hash([payload.a, payload.b])",`{"a":"x","b":1}`},{expr.ForKey,"hash([payload.a, payload.b])",`{"a":"x","b":1.0}`},{expr.ForKey,"hash([payload.a, payload.b])",`{"a":"x"}`},{expr.ForKey,"hash([payload.a])",`{"a":null}`},
  {expr.ForKey,"payload.a * 1.5",`{"a":2}`},{expr.ForKey,"payload.a + '-' + payload.b",`{"a":"x","b":"y"}`},{expr.ForKey,"string(payload.a) + '-' + payload.b",`{"a":12,"b":"y"}`},
  {expr.ForMatch,"payload.?x.orValue('') == ''",`{}`},{expr.ForKey,"has(payload.a) ? payload.a : attributes.a",`{}`},{expr.ForKey,"has(attributes.a) ? attributes.a : null",`{}`},{expr.ForVariable,"has(payload.note) ? payload.note : null",`{}`},{expr.ForVariable,"payload.items.map(i, i.sku)",`{"items":[{"sku":"a"},{"sku":"b"}]}`},
  {expr.ForText,"attributes.eventType.lowerAscii()",`{}`},{expr.ForKey,"payload.a / 2",`{"a":4}`},
 }{
  p,err:=expr.Compile(c.e,c.u); if err!=nil {fmt.Printf("%-9s %-40s COMPILE %v\n",c.u,c.e,err);continue}
  in:=expr.NewInput(expr.Message{ID:"1",PublishTime:at,OrderingKey:"",Subscription:"projects/p/subscriptions/s"},map[string]string{"eventType":"Abc"},[]byte(c.p))
  var v any; switch c.u {case expr.ForKey: v,err=p.Key(in);case expr.ForText:v,err=p.Text(in);case expr.ForSequence:v,err=p.Sequence(in);case expr.ForMatch:v=p.Bool(in);default: var b []byte; b,err=p.JSON(in); v=string(b)}
  fmt.Printf("%-9s %-40s %-28s -> %v  %v\n",c.u,c.e,c.p,v,err)
 }
}
